"""The multilingual model: its tokenizer against `sentencepiece`, and what its vectors find across languages."""

from __future__ import annotations

import hashlib
import io
from functools import cache

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_format

from commonplace.embedding import Embedder, create_embedder
from commonplace.embedding.catalog import default_models_folder, model_named, model_path
from commonplace.embedding.difference import packaged
from commonplace.embedding.e5 import Packed, Unigram, read_packed
from doubles import rounds

MODEL = model_named("multilingual")
TEXTS = [
    "",
    "   two  spaces\tand a tab\nand a line ",
    "The quick brown fox, getUserById() and 1,250,000 at 21.01.2024.",
    "Wie schlage ich eine Rufnummer nach? Größe, Straße, ÄÖÜ",
    "Où est rangé le code commun ? L'été, œuvre, garçon",
    "¿Dónde está el código? ¡Mañana!",
    "Perché è così? Città, più",
    "Onde fica o código? Não, ção, às",
    "Gdzie leży żółty dokument? Łódź",
    "Где лежит общий код? Ёлка, объект",
    "Де лежить спільний код? Їжак, ґанок",
    "Πού είναι το έγγραφο; Ώρα, ΐ",
    "Missä tiedosto on? Yö, työ",
    "Hol van a fájl? Őr, űr",
    "Kde je soubor? Příliš žluťoučký kůň",
    "Dosya nerede? İstanbul, ığdır, şehir",
    "Tệp ở đâu? Tiếng Việt có nhiều dấu",
    "ごく基本的な道具でさえ動かすのに必要な、共通のコードはどこに置かれますか。",
    "连最基本的工具也离不开的公用代码放在哪里？臺灣繁體字",
    "한국어 문장입니다. 띄어쓰기가 있어요.",
    "أين يوجد الملف؟ القُرآن",
    "הקובץ איפה? שָׁלוֹם",
    "फ़ाइल कहाँ है? हिन्दी में लिखा",
    "ไฟล์อยู่ที่ไหน ภาษาไทยไม่มีช่องว่าง",
    "தமிழ் எழுத்து",
    "e\u0301te\u0301, a\u0300\u0301\u0302, か\u3099, \u1112\u1161\u11ab",
    "👍🏽 🇩🇪 ☃️ 🎉🎉",
    "ﬁnancial ① ㍻ ｱｲｳ ½ ² ™ … 𝒜𝕏 \u3000全角",
    "</s> <s> <unk> are text",
    "𐍈 𒀀 𒀀𒀀 unknown characters",
    "日本語" * 300,
    "word " * 2_000,
]


@cache
def packed() -> Packed:
    return read_packed(model_path(MODEL, default_models_folder()) / MODEL.files[0].name)


@cache
def ours() -> Unigram:
    return Unigram(packed(), max_tokens=MODEL.max_tokens)


@cache
def reference() -> tuple[sentencepiece.SentencePieceProcessor, list[int]]:
    """SentencePiece with the model's pieces, and the model's id of each of its ids."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(f"a small text {number}" for number in range(300)),
        model_writer=trained,
        vocab_size=40,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = model_format.ModelProto()
    model.ParseFromString(trained.getvalue())
    del model.pieces[:]
    kinds = model_format.ModelProto.SentencePiece
    header = packed().header
    ids = []
    control = [("<unk>", header.unknown, kinds.UNKNOWN), ("<s>", header.first, kinds.CONTROL)]
    for name, number, kind in (*control, ("</s>", header.last, kinds.CONTROL)):
        model.pieces.add(piece=name, score=0.0, type=kind)
        ids.append(number)
    for name, number in packed().pieces.items():
        model.pieces.add(piece=name, score=packed().scores[number], type=kinds.NORMAL)
        ids.append(number)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()), ids


def expected(text: str) -> list[int]:
    processor, ids = reference()
    content = [ids[number] for number in processor.encode(text)][: MODEL.max_tokens - 2]
    return [packed().header.first, *content, packed().header.last]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_ids_of_sentencepiece(text: str) -> None:
    assert ours().encode(text) == expected(text)


# Left out: joiners, which newer rules keep and those of the model do not, and letters repeated more than twice, where
# several splits have the same score.
words = st.text(st.sampled_from("abcdeghilmnoprstuvzäöüßéñłążбвгдежиклαβγあいうカ中文字語한국어ا ب,.-'12"), max_size=24)


@settings(max_examples=rounds(200), deadline=None)
@given(words.filter(lambda text: not any(letter * 3 in text for letter in text)))
def test_any_mixture_of_letters_has_the_ids_of_sentencepiece(text: str) -> None:
    ids, wanted = ours().encode(text), expected(text)
    assert ids == wanted or score(ids) == pytest.approx(score(wanted), abs=1e-3)


def score(ids: list[int]) -> float:
    return sum(packed().scores[number] for number in ids)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return create_embedder("multilingual")


@pytest.mark.promise("languages-multilingual-model")
def test_a_question_is_nearest_to_its_answer_in_any_other_language(embedder: Embedder) -> None:
    answers = [
        "Meine Tochter ist gegen Erdnüsse allergisch.",
        "Поезд в Берлин отправляется в шесть утра.",
        "会议改到星期五下午三点。",
    ]
    questions = ["Which foods must she avoid?", "¿A qué hora sale el tren?", "Quand a lieu la réunion ?"]
    cosines = embedder.embed(questions, purpose="query") @ embedder.embed(answers, purpose="passage").T
    assert list(cosines.argmax(axis=1)) == [0, 1, 2]


@pytest.mark.promise("languages-multilingual-model")
def test_the_language_of_a_question_does_not_decide_what_is_nearest(embedder: Embedder) -> None:
    answers = [
        "The train to Berlin leaves at six in the morning.",
        "My daughter is allergic to peanuts.",
        "Our office is closed on Mondays.",
    ]
    others = [
        "我昨天在公园里看了一本书。",
        "这家餐厅的面条很好吃。",
        "他每天早上去跑步。",
        "请把窗户关上。",
        "明天可能会下雨。",
    ]
    questions = ["去柏林的火车几点出发？", "我女儿不能吃什么？", "办公室星期几不开门？"]

    def nearest(model: Embedder) -> list[int]:
        passages = model.embed([*answers, *others], purpose="passage")
        return list((model.embed(questions, purpose="query") @ passages.T).argmax(axis=1))

    assert nearest(embedder) == [0, 1, 2]


def test_the_model_of_older_books_can_still_be_named(embedder: Embedder) -> None:
    plain = create_embedder("multilingual-e5-small")
    assert plain.identity == "multilingual-e5-small@1571fc98"
    assert embedder.identity == "multilingual-e5-small-centred@1571fc98"


def test_a_centre_that_is_not_the_one_of_the_identity_is_noticed() -> None:
    assert MODEL.centre is not None
    digest = hashlib.sha256(packaged(MODEL.centre)).hexdigest()
    assert digest == "03aeb56779a59dcb62e8575a345e80076626c5ae4d4c6f992acfbd5297a64bd7", "give the model another id"


def test_a_text_has_the_same_bits_alone_and_in_a_batch(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS[:8], purpose="passage")
    for text, row in zip(TEXTS[:8], together, strict=True):
        assert embedder.embed([text], purpose="passage")[0].tobytes() == row.tobytes()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)


def test_queries_and_passages_have_prefixes_of_their_own(embedder: Embedder) -> None:
    as_query, as_passage = (embedder.embed(["tea"], purpose=purpose)[0] for purpose in ("query", "passage"))
    assert as_query.tobytes() != as_passage.tobytes()
