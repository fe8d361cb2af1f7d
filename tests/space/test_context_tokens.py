"""How many tokens a text and a message have: never much below what a model counts, and images are images."""

from __future__ import annotations

import pytest

from commonplace.space.context import TOKENS_OF_ENCODED_DATA, estimate_tokens, message_tokens


def user(*parts):
    return {"role": "user", "content": [*parts]}


def result(text):
    return {"role": "tool", "tool_call_id": "c1", "content": text}


# Measured with OpenAI's o200k and cl100k; the larger number of the two.
MEASURED = [
    ("We decided last week that the deployment of the payment service should happen on Tuesday morning.", 17),
    ("def add(self, thread_id: str, messages: Sequence[Message]) -> tuple[Message, ...]:", 22),
    ("上周我们决定支付服务的部署应该在星期二早上进行，因为大部分团队成员都在，而且流量较低。", 46),
    ("Мы решили на прошлой неделе, что развертывание платежного сервиса должно состояться во вторник утром.", 45),
    ('{"id":"6f1ed002-ab5d-4d5a-8b5b-1f3c8ea01234","price":0.7231,"n":17}', 42),
    ("🎉🚀👍🏽👩‍👩‍👧‍👦😂🔥", 35),
    ("3.14159265358979323846264338327950288", 14),
    ("1 2 3\n4 5 6\n7 8 9\n0 1 2", 23),
    ("x\ty\tz\n1\t2\t3\n4\t5\t6", 15),
    ("[1, 2, 3, 17, 42, 5, 8]", 21),
    ("Yes\nNo\nYes\nYes\nNo\nYes\n", 12),
    ("Roses are red\nViolets are blue\nSugar is sweet\nAnd so are you", 19),
    ("Roses are red\r\nViolets are blue\r\nSugar is sweet\r\nAnd so are you", 19),
    ("\x01\x02\x7f" * 4, 12),
    ("\r\r\r\r", 4),
    ("Gizon-emakume guztiak aske jaiotzen dira, duintasun eta eskubide berberak dituztela", 33),
    ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι", 45),
    ("כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם", 54),
    ("Բոլոր մարդիկ ծնվում են ազատ ու հավասար", 70),
    ("Хүн бүр төрж мэндлэхэд эрх чөлөөтэй", 37),
    ("ðə kwɪk braʊn fɒks dʒʌmps ˈoʊvə ðə leɪzi dɒɡ", 40),
    ("ꦱꦧꦼꦤ꧀ꦲꦸꦮꦺꦴꦁꦏꦭꦲꦶꦂꦫꦏꦺ", 56),
    ("𐌰𐌹𐌽𐍃 𐌲𐌿𐌸", 29),
]


@pytest.mark.promise("context-estimate-not-low")
@pytest.mark.parametrize(("text", "tokens"), MEASURED)
def test_the_estimate_is_not_much_below_the_tokens_of_a_real_tokenizer(text, tokens):
    assert 0.85 * tokens <= estimate_tokens(text) <= 2.2 * tokens


PNG = "iVBORw0KGgo" * 50_000
PNG_ADDRESS = "data:image/png;base64," + PNG
MEDIA = {
    "openai": {"type": "image_url", "image_url": {"url": PNG_ADDRESS}},
    "openai file": {
        "type": "file",
        "file": {"filename": "plan.pdf", "file_data": "data:application/pdf;base64," + PNG},
    },
    "openai audio": {"type": "input_audio", "input_audio": {"format": "wav", "data": PNG}},
    "responses": {"type": "input_image", "image_url": PNG_ADDRESS},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "anthropic result": {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "document", "source": {"type": "base64", "data": PNG}}],
    },
    "ai-sdk": {"type": "file", "mediaType": "image/png", "url": PNG_ADDRESS},
    "ai-sdk result": {
        "type": "tool-result",
        "toolCallId": "c1",
        "output": {"type": "content", "value": [{"type": "media", "mediaType": "image/png", "data": PNG}]},
    },
    "responses item": {"type": "image_generation_call", "result": PNG},
    "attachment": {"format": 2, "parts": [], "experimental_attachments": [{"name": "a.png", "url": PNG_ADDRESS}]},
    "mcp": {"type": "image", "mimeType": "image/png", "data": PNG},
    "openai by address": {"type": "image_url", "image_url": {"url": "https://ex.com/a.png", "detail": "high"}},
    "openai file by id": {"type": "file", "file": {"file_id": "file-abc"}},
    "assistants by id": {"type": "image_file", "image_file": {"file_id": "file-abc", "detail": "low"}},
    "responses by address": {"type": "input_image", "image_url": "https://ex.com/a.png", "detail": "high"},
    "responses by id": {"type": "input_image", "file_id": "file-abc"},
    "responses file by address": {"type": "input_file", "file_url": "https://ex.com/a.pdf"},
    "responses file by id": {"type": "input_file", "file_id": "file-abc", "filename": "a.pdf"},
    "responses result": {
        "type": "function_call_output",
        "output": [{"type": "input_image", "image_url": "https://ex.com/a.png"}],
    },
    "anthropic by address": {"type": "image", "source": {"type": "url", "url": "https://ex.com/a.png"}},
    "anthropic by id": {"type": "document", "title": "Plan", "source": {"type": "file", "file_id": "file-abc"}},
    "anthropic small": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}},
    "ai-sdk by address": {"type": "file", "mediaType": "image/png", "url": "https://ex.com/a.png"},
    "ai-sdk image by address": {"type": "image", "image": "https://ex.com/a.png"},
    "ai-sdk result by address": {
        "type": "tool-result",
        "toolCallId": "c1",
        "output": {"type": "content", "value": [{"type": "image-url", "url": "https://ex.com/a.png"}]},
    },
    "attachment by address": {"experimental_attachments": [{"name": "a.png", "url": "https://ex.com/a.png"}]},
}


@pytest.mark.parametrize("part", MEDIA.values(), ids=MEDIA.keys())
def test_an_image_counts_as_an_image_and_not_as_its_characters(part):
    tokens = message_tokens(user({"type": "text", "text": "look"}, part), estimate_tokens)
    assert TOKENS_OF_ENCODED_DATA < tokens < 2 * TOKENS_OF_ENCODED_DATA


@pytest.mark.parametrize("audio", [{"id": "a1", "data": PNG, "transcript": "hi"}, {"id": "a1"}])
def test_what_a_model_spoke_counts_as_a_sound(audio):
    tokens = message_tokens({"role": "assistant", "content": None, "audio": audio}, estimate_tokens)
    assert TOKENS_OF_ENCODED_DATA < tokens < 2 * TOKENS_OF_ENCODED_DATA


LINK = "https://ex.com/a.png"
LINKS = {
    "text": user({"type": "text", "text": f"see {LINK}"}),
    "citation": user({"type": "output_text", "text": "x", "annotations": [{"type": "url_citation", "url": LINK}]}),
    "source": user({"type": "source-url", "url": LINK}),
    "document": user({"type": "document", "source": {"type": "text", "data": LINK}}),
    "arguments": user({"type": "tool_use", "id": "c1", "input": {"type": "image", "url": LINK}}),
    "result": result(f'{{"type":"image","url":"{LINK}"}}'),
    "ai-sdk result": user({"type": "tool-find", "toolCallId": "c1", "output": [{"type": "video", "url": LINK}] * 5}),
}


@pytest.mark.parametrize("message", LINKS.values(), ids=LINKS.keys())
def test_a_link_in_what_is_written_out_counts_as_its_characters(message):
    assert message_tokens(message, estimate_tokens) < 200


STREAM = "data: " + "the quick brown fox jumps over the lazy dog. " * 500
HEX = "0123456789abcdef" * 1_000
WRITTEN = {
    "result": result(STREAM),
    "hex": result(HEX),
    "address": result("data:text/plain;base64," + HEX),
    "text": user({"type": "text", "text": STREAM}),
    "encoded text": user({"type": "text", "text": HEX}),
    "document": user({"type": "document", "source": {"type": "text", "data": HEX}}),
    "arguments": {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": HEX}}]},
    "input": user({"type": "tool_use", "id": "c1", "input": {"type": "image", "data": HEX}}),
    "output": {"type": "function_call_output", "call_id": "c1", "output": HEX},
    "data": {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "output": {"type": "json", "value": {"type": "image", "data": HEX}},
            }
        ],
    },
}


@pytest.mark.promise("context-within-its-tokens")
@pytest.mark.parametrize("message", WRITTEN.values(), ids=WRITTEN.keys())
def test_what_is_written_out_counts_in_full_though_it_looks_encoded(message):
    assert message_tokens(message, len) > len(HEX)
