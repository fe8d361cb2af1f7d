"""The end of an address as one parameter, `{path:tail}`; `path`, which is Starlette's own, stops at a newline."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class Tail(Convertor[str]):
    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def register() -> None:
    register_url_convertor("tail", Tail())
