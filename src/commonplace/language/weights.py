"""The constants of ranking, each with the reason for its value.

They were chosen together on development data. Decisions 004, 007 and 016 have the figures; `benchmarks/quality.py`
measures them again. A change here changes the order of hits, and for `PART`, `SENTENCES` and `LONGEST_SENTENCES` also
what is looked up or stored.
"""

from __future__ import annotations

# Words (BM25)

K1 = 0.9  # how slowly the effect of repeating a word saturates; 0.6 to 1.2 differ little
B = 0.4  # how much a text's length counts against it; memories are short, so less than the usual 0.75
LONGEST = 3.0  # longer texts, as a multiple of the average, count as this long: a long file among short notes
RARITY = 1.5  # how much more a rare word counts than a common one; 1 is the usual value
PART = 0.5  # the weight of a compound's part in a query: `user` in `user_id` says less than `user_id`
FRAME = 0.5  # the weight of a framing word such as `how many weeks`: texts say it about something else

# Words and meaning together

WORDS, MEANING = 0.9, 0.8  # the highest score from words alone, and from meaning alone
SAID_WORDS, SAID_MEANING = 0.85, 0.9  # the same in messages: an answer repeats few words of its question
CHANCE = 0.2  # in a message, a smaller share of the words may be chance and counts in proportion to itself
THREADS_CHANCE = 0.1  # the same when threads are ranked: names and rare words find a whole talk better than one message
PRESUMED = 2.0  # the meaning of a text without a vector, from its words: once in a text gives half of the ceiling
SENTENCES = 2.0  # the weight of the mean of a passage's sentences; the whole passage has the weight 1
LONGEST_SENTENCES = 600  # characters: in longer passages sentences help less and cost more

# Candidates

FIRST_WINDOW = 24  # from words, and from meaning; both score all of them. 48 cost a sixth more time, 32 a twentieth
MESSAGES_WINDOW = 48  # the first window when only messages are searched: a lift needs candidates to lift
WINDOW_GROWTH = 4  # each window asks for this many times as many candidates as the one before
HEAD = 10  # if none of the first so many belongs to a conversation, the others are not examined for it
THREADS_WINDOW = 60  # the first window when threads are ranked: ten threads are among it
HITS_A_THREAD = 3  # hits read for each wanted thread; five find one question in a hundred more, for a third more time
THREADS_BLOCKS = (30, 120, 480)  # hits after which the list of threads goes on: ten threads are ranked by the first 30

# Time and conversation

TIME = 0.2  # the exponent that a text from the named time gains; more pushes other evidence out
CONVERSATION = 0.5  # the most that other messages of a conversation can add
NEAR = 0.9  # only messages with so much of the query's best score speak for others: a long talk has many poor ones
WEAK, STRONG = 0.4, 0.75  # a best score of WEAK is a guess, and its conversation lifts nothing; from STRONG on, fully
FADING = 0.5  # each further message counts half as much as the one before
NEIGHBOUR = 0.2  # the share of the score of the messages directly before and after
REPEATED = 0.7  # the share that is left to all but the best message of a conversation if nothing matches well
DOUBT, SURE = 0.3, 0.5  # up to a best score of DOUBT, REPEATED holds fully; from SURE on, not at all
ASSISTANT = 0.7  # what an assistant without a name says: it talks much, and the facts are in what its user said
SHARPNESS = 10  # of a thread the best message decides; others count only if they are nearly as good
