"""Makes the sample memory of the page, `src/commonplace/server/page/sample.jsonl`, from the story below.

`python scripts/sample_memory.py` writes the file. A test makes it again and compares. The story is invented: Wilma
Torvik, the rowing club of Skarness and the program Tideline do not exist. It has edits, moves, deletions, a restored
file and an undone commit, so that history and as-of have something to show.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import commonplace
from commonplace.checks import JSON

TARGET = Path(__file__).resolve().parent.parent / "src/commonplace/server/page/sample.jsonl"
NAMESPACE = ("sample",)
PAGE, CODE, CHAT = "wilma page", "wilma mcp claude-code", "wilma rest tideline-chat"
Step = Callable[[commonplace.Space], object]
STORY: list[tuple[str, str, Step]] = []
"""Time, actor and what was done, in order."""


def at(time: str, actor: str, *steps: Step) -> None:
    STORY.extend((f"2026-{time}", actor, step) for step in steps)


def note(path: str, text: str) -> Step:
    return lambda space: space.files.write(path, text.strip("\n") + "\n")


def add(path: str, line: str) -> Step:
    return lambda space: space.files.append(path, line)


def change(path: str, old: str, new: str) -> Step:
    def step(space: commonplace.Space) -> object:
        text = space.files.read(path)
        assert old in text, (path, old)
        return space.files.write(path, text.replace(old, new))

    return step


def move(path: str, to: str) -> Step:
    return lambda space: space.files.move(path, to)


def delete(path: str) -> Step:
    return lambda space: space.files.delete(path)


def learn(name: str, type: str, content: str, source: str, confidence: float, *tags: str) -> Step:
    return lambda space: space.records.create(
        id=_id(name), type=type, content=content, source=source, confidence=confidence, tags=tags
    )


def correct(name: str, **fields: object) -> Step:
    return lambda space: space.records.update(_id(name), **fields)  # type: ignore[arg-type]


def forget(name: str) -> Step:
    return lambda space: space.records.delete(_id(name))


def thread(name: str, title: str) -> Step:
    return lambda space: space.threads.create(title, id=_id(name))


def say(name: str, *messages: Mapping[str, object]) -> Step:
    def step(space: commonplace.Space) -> object:
        count = len(space.threads.messages(_id(name), limit=1_000).messages)
        numbered = [{"id": _id(f"{name} {count + number}"), **one} for number, one in enumerate(messages)]
        return space.threads.add(_id(name), numbered)

    return step


def user(text: str) -> Mapping[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str) -> Mapping[str, object]:
    return {"role": "assistant", "content": text}


def call(id: str, tool: str, arguments: str, result: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    function = {"name": tool, "arguments": arguments}
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]}
    return asked, {"role": "tool", "tool_call_id": id, "content": result}


def profile(content: Mapping[str, JSON]) -> Step:
    return lambda space: space.threads.working.write(content)


def restore(path: str, revision: int) -> Step:
    return lambda space: space.restore("file", path, revision)


def undo_last(space: commonplace.Space) -> object:
    return space.undo(space.stats().commit)


def _id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://commonplace.invalid/sample/{name}"))


# The first week: the idea


at(
    "09-21T07:40",
    "commonplace sample",
    note(
        "/about-this-memory.md",
        """
# About this memory

This is a sample. It shows what seven weeks of notes, facts and conversations look like: those of Wilma Torvik, who
rows, writes software and is building *Tideline*. She does not exist, and neither does her club.

Some things to try:

- Ask a question on the first screen, such as what somebody owes a friend.
- Open `/tideline/decisions.md` and look at its history.
- Look at the memory as of 1 October, when the data still came from another place.
- Undo a commit, or restore something that was deleted.

Nothing here touches your own memory. You can remove the sample with one click.
""",
    ),
)
at(
    "09-21T18:05",
    PAGE,
    note(
        "/tideline/idea.md",
        """
# Tideline

A page for the club's noticeboard: when is it safe to take a boat out from Skarness?

- The bar at the harbour mouth needs 1.2 m of water.
- Nobody wants to read a tide table. They want green, amber or red for the next three hours.
- It has to work on the old tablet in the boathouse.
""",
    ),
    note(
        "/notes/2026-09-21.md",
        """
# Monday

Rowed with Tove before work, flat calm. She ran aground on the bar last week because she misread the table by an hour:
summer time. If the noticeboard did the sums, it would not have happened.
""",
    ),
)
at(
    "09-21T18:20",
    CODE,
    learn(
        "name",
        "profile",
        "Wilma Torvik builds Tideline, a tide noticeboard for the Skarness Rowing Club",
        "chat",
        1.0,
        "people",
    ),
    learn(
        "tea", "preference", "Wilma drinks black tea with milk in the morning and no coffee at all", "chat", 0.9, "food"
    ),
    learn(
        "python",
        "preference",
        "Wilma prefers plain Python and SQLite to frameworks, and short functions",
        "chat",
        0.9,
        "code",
    ),
    learn(
        "bar",
        "fact",
        "A boat needs at least 1.2 m of water to cross the bar at the harbour mouth of Skarness",
        "idea.md",
        0.8,
        "tides",
        "safety",
    ),
)
at(
    "09-21T18:30",
    CODE,
    profile({"name": "Wilma", "home": "Skarness", "project": {"name": "Tideline", "status": "idea"}}),
)
at(
    "09-22T06:50",
    CHAT,
    thread("start", "Planning Tideline"),
    say(
        "start",
        user("I want a noticeboard that tells rowers when they can cross the bar. Where do I begin?"),
        assistant(
            "Begin with the one number that matters: the depth over the bar, now and for the next three hours. Everything "
            "else is decoration. Do you have a source for tide heights at Skarness?"
        ),
        user("There is a tide table from the harbour office, as a PDF. I could type it in, month by month."),
        assistant(
            "That works for a first version. A harmonic prediction would save you the typing later. I have noted that "
            "the bar needs 1.2 m."
        ),
    ),
)
at(
    "09-23T19:15",
    CODE,
    note(
        "/tideline/decisions.md",
        """
# Decisions

1. **Data**: the harbour office's table, typed in by hand, one month ahead.
2. **Colours**: green from 1.5 m, amber from 1.2 m, red below.
3. **Page**: one static file, written every ten minutes.
""",
    ),
    learn(
        "colours",
        "decision",
        "Tideline shows green from 1.5 m over the bar, amber from 1.2 m and red below",
        "decisions.md",
        0.9,
        "tideline",
        "safety",
    ),
    learn(
        "source",
        "decision",
        "Tide heights come from the harbour office's table, typed in by hand",
        "decisions.md",
        0.9,
        "tideline",
        "tides",
    ),
)
at(
    "09-24T20:10",
    PAGE,
    note(
        "/people/tove.md",
        "# Tove Nygard\n\nRows in the double with Wilma, Monday and Thursday at 06:15. Allergic to wasps. Owes Wilma a thermos.\n",
    ),
)
at(
    "09-25T12:30",
    PAGE,
    note(
        "/tideline/todo.md",
        """
# To do

- [x] Depth over the bar from a height at the gauge
- [ ] Type in October
- [ ] Summer time: the table is in standard time
- [ ] Ask Henrik about the tablet
""",
    ),
    learn(
        "gauge",
        "fact",
        "The gauge is on the mole; the bar lies 0.9 m higher than its zero",
        "harbour office, by telephone",
        0.7,
        "tides",
    ),
)

# The second week: the first version runs

at(
    "09-28T07:20",
    CODE,
    change("/tideline/todo.md", "- [ ] Type in October", "- [x] Type in October (two evenings, never again)"),
)
at(
    "09-28T18:45",
    CHAT,
    say(
        "start",
        user("The first version runs. The times are an hour off, though."),
        *call(
            "call_1",
            "memory_search",
            '{"query": "tide table time zone"}',
            "file /tideline/todo.md: Summer time: the table is in standard time",
        ),
        assistant("Your own list says why: the table is in standard time. Convert on the way in, and store UTC only."),
        user("Of course. That is exactly what got Tove stranded."),
    ),
)
at(
    "09-29T06:40",
    CODE,
    learn(
        "utc",
        "decision",
        "All times in Tideline are stored in UTC; the page shows local time",
        "decisions.md",
        1.0,
        "tideline",
        "code",
    ),
    add(
        "/tideline/decisions.md",
        "4. **Times**: stored in UTC, shown in local time. The table is in standard time all year.",
    ),
    change(
        "/tideline/todo.md",
        "- [ ] Summer time: the table is in standard time",
        "- [x] Summer time: the table is in standard time",
    ),
)
at(
    "09-30T21:00",
    PAGE,
    note(
        "/notes/2026-09-30.md",
        "# Wednesday\n\nShowed it to the committee. They liked the colours. Solveig asked what happens in fog. Nothing happens in fog: it is about water. Perhaps I should say so on the page.\n",
    ),
)
at(
    "09-30T21:10",
    CODE,
    learn(
        "fog",
        "idea",
        "Say on the noticeboard that the colour is about depth only, not about fog or wind",
        "notes",
        0.6,
        "tideline",
    ),
)
at(
    "10-01T08:00",
    PAGE,
    note(
        "/people/henrik.md",
        "# Henrik Aas\n\nTreasurer of the club. Looks after the boathouse and its tablet: an old one, 1024 by 600, its browser is from 2019. Reach him at the boathouse on Saturdays.\n",
    ),
)
at(
    "10-01T08:05",
    CODE,
    learn(
        "tablet",
        "fact",
        "The tablet in the boathouse has 1024 by 600 pixels and a browser from 2019",
        "Henrik",
        0.9,
        "tideline",
        "boathouse",
    ),
)
at(
    "10-02T18:00",
    PAGE,
    note("/drafts/poster.md", "# Is there enough water?\n\nLook at the tablet before you carry the boat down.\n"),
)

# The third week: the data changes

at(
    "10-05T19:30",
    CHAT,
    thread("harmonics", "Where the heights come from"),
    say(
        "harmonics",
        user("Typing a month of tides took two evenings. What would a harmonic prediction need?"),
        assistant(
            "The constituents of your gauge: an amplitude and a phase for each of about thirty periods. The harbour "
            "office may have them, or you fit them yourself to a year of readings."
        ),
        user("They have a year of readings, every ten minutes, as text files."),
        assistant(
            "Then fit them. With a year you can separate all the large constituents. Keep one month back to test."
        ),
    ),
)
at(
    "10-06T20:15",
    CODE,
    note(
        "/tideline/harmonics.md",
        "# Fitting the constituents\n\nOne year of readings, ten minutes apart, October held back.\n\n| constituent | amplitude (m) |\n| --- | --- |\n| M2 | 0.71 |\n| S2 | 0.24 |\n| N2 | 0.15 |\n| K1 | 0.06 |\n",
    ),
)
at(
    "10-08T21:40",
    CODE,
    change(
        "/tideline/harmonics.md",
        "| K1 | 0.06 |\n",
        "| K1 | 0.06 |\n\nMean error against October: 6 cm. Good enough: the office's own table is off by 5.\n",
    ),
    learn(
        "error",
        "fact",
        "The harmonic prediction is off by 6 cm on average, the harbour office's table by 5 cm",
        "harmonics.md",
        0.9,
        "tides",
    ),
)
at(
    "10-09T07:10",
    CODE,
    change(
        "/tideline/decisions.md",
        "1. **Data**: the harbour office's table, typed in by hand, one month ahead.",
        "1. **Data**: predicted from the constituents in `harmonics.md`; the table only to check.",
    ),
    correct(
        "source",
        content="Tide heights are predicted from fitted constituents; the harbour office's table is only a check",
        confidence=1.0,
    ),
)
at(
    "10-09T07:15",
    CODE,
    profile({"project": {"name": "Tideline", "status": "running in the boathouse"}, "rows": ["Monday", "Thursday"]}),
)
at(
    "10-11T10:30",
    PAGE,
    move("/drafts/poster.md", "/tideline/poster.md"),
    change("/tideline/poster.md", "Look at the tablet", "Look at Tideline"),
)

# The fourth and fifth week: people use it

at(
    "10-13T06:05",
    CODE,
    learn(
        "wind",
        "fact",
        "A strong south-easterly lowers the water at Skarness by up to 20 cm",
        "Henrik",
        0.6,
        "tides",
        "safety",
    ),
)
at(
    "10-13T21:20",
    PAGE,
    note(
        "/notes/2026-10-13.md",
        "# Tuesday\n\nAmber at 06:10, and I touched the bar. Henrik says a south-easterly pushes the water out of the bay, up to 20 cm. The prediction knows nothing of wind.\n",
    ),
)
at(
    "10-14T19:00",
    CHAT,
    thread("margin", "A margin for wind"),
    say(
        "margin",
        user("I touched the bar on amber. Wind pushed the water out. What should the thresholds be?"),
        *call(
            "call_2",
            "memory_search",
            '{"query": "thresholds over the bar"}',
            "record: Tideline shows green from 1.5 m over the bar, amber from 1.2 m and red below",
        ),
        assistant(
            "You have amber from 1.2 m, which is the least a boat needs. With up to 20 cm of wind and 6 cm of error, "
            "amber should begin at 1.5 m and green at 1.8 m."
        ),
        user("That makes the green window short at neaps. Fine. Short and true."),
    ),
)
at(
    "10-14T19:12",
    CODE,
    correct(
        "colours",
        content="Tideline shows green from 1.8 m over the bar, amber from 1.5 m and red below, with 30 cm for wind and error",
        confidence=1.0,
    ),
    change(
        "/tideline/decisions.md",
        "2. **Colours**: green from 1.5 m, amber from 1.2 m, red below.",
        "2. **Colours**: green from 1.8 m, amber from 1.5 m, red below. 30 cm are for wind and error.",
    ),
)
at(
    "10-15T20:00",
    PAGE,
    add("/people/tove.md", "Returned the thermos on 15 October. Wants to row the long race in May."),
)
at(
    "10-16T12:00",
    CODE,
    learn("race", "plan", "Tove and Wilma want to row the long race in May", "people/tove.md", 0.7, "rowing", "people"),
)
at(
    "10-17T11:00",
    PAGE,
    note("/boathouse/keys.md", "# Keys\n\nThe spare key hangs behind the lifebelt.\n"),
    note(
        "/boathouse/rota.md", "# Rota for the boathouse\n\n- October: Henrik\n- November: Wilma\n- December: Solveig\n"
    ),
)
at("10-17T11:30", PAGE, delete("/boathouse/keys.md"))
at(
    "10-19T18:30",
    CODE,
    learn("cold", "preference", "Wilma does not row below 4 degrees of water", "chat", 0.5, "rowing", "safety"),
)
at(
    "10-20T07:45",
    CODE,
    forget("fog"),
    note(
        "/tideline/poster.md",
        "# Is there enough water?\n\nLook at Tideline before you carry the boat down. The colour is about depth only: fog and wind are yours to judge.\n",
    ),
)
at(
    "10-21T21:15",
    PAGE,
    note(
        "/notes/2026-10-21.md",
        "# Wednesday\n\nEleven crews this week looked at the tablet before they went out. Henrik keeps a tally on the wall, which is the best usage report I have ever had.\n",
    ),
)

# The sixth week: a mistake, and back

at("10-24T16:00", CODE, note("/tideline/decisions.md", "# Decisions\n\nMoved to the wiki.\n"))
at("10-24T16:40", PAGE, restore("/tideline/decisions.md", 4))
at(
    "10-25T09:00",
    PAGE,
    add("/tideline/decisions.md", "5. **Clock change**: tested on 25 October, nothing moved. Decision 4 paid off."),
)
at("10-26T20:30", CODE, learn("wiki", "decision", "The decisions move to the club's wiki", "chat", 0.4, "tideline"))
at("10-26T20:35", CODE, undo_last)
at(
    "10-28T19:40",
    CHAT,
    thread("winter", "Winter plans"),
    say(
        "winter",
        user("What is left to do on Tideline before winter?"),
        *call(
            "call_3",
            "memory_search",
            '{"query": "tideline to do"}',
            "file /tideline/todo.md: Ask Henrik about the tablet",
        ),
        assistant(
            "One line is open on your list: ask Henrik about the tablet. And you have the boathouse rota in November."
        ),
        user("The tablet is settled, he will leave it on all winter. Remember that the battery is swollen, though."),
        assistant("Noted. A swollen battery should not stay plugged in unattended: ask him to replace it first."),
    ),
)
at(
    "10-28T19:45",
    CODE,
    learn(
        "battery",
        "task",
        "Ask Henrik to replace the swollen battery of the tablet before it stays on all winter",
        "chat",
        0.9,
        "boathouse",
        "safety",
    ),
    change(
        "/tideline/todo.md",
        "- [ ] Ask Henrik about the tablet",
        "- [x] Ask Henrik about the tablet\n- [ ] Replace its battery",
    ),
)

# The seventh week

at(
    "11-02T07:00",
    PAGE,
    note(
        "/notes/2026-11-02.md",
        "# Monday\n\nFirst frost. Rowed anyway, green all the way, water at 7 degrees. My week for the boathouse.\n",
    ),
)
at("11-02T07:05", CODE, correct("cold", confidence=0.8, content="Wilma does not row when the water is below 5 degrees"))
at(
    "11-03T18:20",
    CODE,
    learn(
        "solveig",
        "person",
        "Solveig Brandt chairs the club's committee and answers letters within a day",
        "chat",
        0.8,
        "people",
    ),
)
at(
    "11-04T20:00",
    PAGE,
    note(
        "/tideline/season.md",
        "# The first season\n\n- 43 crossings on green, none aground.\n- 6 cm mean error of the prediction.\n- One threshold changed, on 14 October, after I touched the bar myself.\n\nNext year: the wind, from the mast on the mole.\n",
    ),
)
at(
    "11-05T19:10",
    CODE,
    learn(
        "mast",
        "plan",
        "Next year Tideline should read the wind from the mast on the mole and lower the depth by it",
        "season.md",
        0.8,
        "tideline",
        "tides",
    ),
)
at(
    "11-06T12:15",
    CODE,
    correct("battery", content="The tablet has a new battery since 6 November", type="fact", confidence=1.0),
    change("/tideline/todo.md", "- [ ] Replace its battery", "- [x] Replace its battery"),
)
at(
    "11-07T10:00",
    CHAT,
    say(
        "winter",
        user("What did we decide about the colours in the end?"),
        *call(
            "call_4",
            "memory_search",
            '{"query": "colours thresholds"}',
            "record: Tideline shows green from 1.8 m over the bar, amber from 1.5 m and red below, with 30 cm for wind and error",
        ),
        assistant(
            "Green from 1.8 m over the bar, amber from 1.5 m, red below. It changed on 14 October, to leave 30 cm for wind and error."
        ),
    ),
)
at(
    "11-08T17:30",
    PAGE,
    delete("/tideline/idea.md"),
    profile({"project": {"name": "Tideline", "status": "first season done"}, "next": "read the wind from the mast"}),
)


def made() -> bytes:
    """The export of a book in which the story happened."""
    now = 0
    lines: list[bytes] = []
    with (
        TemporaryDirectory() as folder,
        commonplace.open(Path(folder) / "sample.db", background=False, clock=lambda: now) as book,
    ):
        for time, actor, step in STORY:
            moment = datetime.fromisoformat(time).replace(tzinfo=UTC)
            now = max(now + 1_000_000, round(moment.timestamp() * 1_000_000))
            step(book.space(*NAMESPACE, actor=actor))
        book.export(lines.append, namespaces=[NAMESPACE])
    return b"".join(lines)


def main() -> int:
    TARGET.write_bytes(made())
    print(f"{TARGET.name}: {len(STORY)} steps, {TARGET.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
