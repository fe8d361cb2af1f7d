"""Search in the store on PostgreSQL: candidates by words and by meaning, the models, and storing their vectors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from commonplace.backends.postgres import candidates, index, maintenance
from commonplace.backends.postgres.connection import Session, translated
from commonplace.backends.postgres.reading import Spot
from commonplace.backends.postgres.runner import READ
from commonplace.backends.postgres.store_base import OpenStore
from commonplace.backends.ranking import Page
from commonplace.checks import Namespace
from commonplace.filters import Filter
from commonplace.store import Answer, Asked, Candidate, Choose, Indexing, Pending, TermCounts

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MODELS_KNOWN_SECONDS = 0.5


class SearchStore(OpenStore):
    """Searches, and the vectors behind them."""

    _known_models: tuple[float, list[index.Model]] | None = None

    def search_text(
        self,
        namespace: Namespace,
        terms: Mapping[str, float],
        filter: Filter,
        limit: int,
        also: Sequence[int] = (),
    ) -> list[Candidate]:
        page = Page(filter, limit, self._now(), also)
        return self._read(
            namespace,
            [],
            lambda session, spot: candidates.search_text(session, spot, terms, page),
            is_search=True,
        )

    def search_vectors(
        self, namespace: Namespace, model: str, query: NDArray[float32], filter: Filter, limit: int
    ) -> list[Candidate]:
        page = Page(filter, limit, self._now())
        known = self._model(model)
        if known is None:
            return []
        return self._read(
            namespace,
            [],
            lambda session, spot: candidates.search_vectors(session, spot, (known, query), page),
            is_search=True,
        )

    def search(
        self, namespace: Namespace, asked: Asked, choose: Choose, *, unless_pending: bool = False
    ) -> Answer | None:
        if self._replica is not None:  # it may propose, but the primary knows what is live
            return super().search(namespace, asked, choose, unless_pending=unless_pending)
        model = None if asked.meaning is None else self._model(asked.meaning[0])

        def work(session: Session, spot: Spot) -> Answer | None:
            return candidates.search(session, spot, asked, choose, model, self._now(), unless_pending=unless_pending)

        nothing: Answer | None = Answer([], [], {})
        return self._read(namespace, nothing, work)

    def term_counts(self, namespace: Namespace, terms: Sequence[str]) -> TermCounts:
        return self._read(
            namespace,
            TermCounts(0, 0.0, {}),
            lambda session, spot: candidates.term_counts(session, spot, terms),
            snapshot=True,
        )

    def passage_vectors(
        self, namespace: Namespace, model: str, states: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int, NDArray[float32]]]:
        known = self._model(model)
        if known is None:
            return []
        return self._read(
            namespace,
            [],
            lambda session, spot: index.passage_vectors(session, spot, known.id, states),
            is_search=True,
        )

    # Models and vectors

    def _model(self, identity: str) -> index.Model | None:
        found = {model.identity: model for model in self._models()}
        if identity not in found:
            self._known_models = None
            found = {model.identity: model for model in self._models()}
        return found.get(identity)

    def _models(self) -> list[index.Model]:
        """All models. They change so rarely that a look twice a second is enough; every search asks for them."""
        known = self._known_models
        if known is None or time.monotonic() - known[0] > MODELS_KNOWN_SECONDS:
            asked_at = time.monotonic()
            known = self._known_models = (asked_at, self._runner.system(index.models, mode=READ))
        return known[1]

    def models(self) -> tuple[str | None, str | None]:
        roles = {model.role: model.identity for model in self._models()}
        serving = roles.get("serving")
        return serving, roles.get("target", serving)

    def indexing(self, namespace: Namespace | None = None) -> Indexing:
        if namespace is None:
            pending = self._runner.system(lambda session: index.pending_count(session, None), mode=READ)
        else:
            pending = self._read(namespace, 0, index.pending_count)
        return Indexing(*self.models(), pending)

    def aim(self, model: str, dimensions: int) -> None:
        self._runner.system(lambda session: index.set_target_model(session, model, dimensions), is_long=True)
        self._drop_retired()

    def claim(self, limit: int, lease_seconds: float, *, even_leased: bool = False) -> list[Pending]:
        claimed, is_promoted = self._runner.system(
            lambda session: index.claim(session, limit, lease_seconds, self._now(), even_leased=even_leased)
        )
        if is_promoted:
            self._drop_retired()
        return claimed

    def pending(
        self, namespace: Namespace, limit: int, *, among: Sequence[tuple[int, int]] | None = None
    ) -> list[Pending]:
        return self._read(namespace, [], lambda session, spot: index.pending(session, spot, limit, among))

    def index(self, model: str, embedded: Sequence[tuple[int, NDArray[float32]]]) -> None:
        if self._runner.system(lambda session: index.store_vectors(session, model, embedded)):
            self._drop_retired()
        self._note_write()

    def _drop_retired(self) -> None:
        """After a change of roles: what the former models leave behind."""
        self._known_models = None
        while self._runner.system(index.drop_retired):
            continue
        self._known_models = None

    def tidy(self) -> bool:
        with translated(self.place.shown):
            return maintenance.maintain(self._runner, self._connect, self.place.system_role)

    def vector_indexes(self) -> dict[str, bool]:
        """The approximate indexes that there are, and whether each is complete."""
        return self._runner.system(maintenance.known_indexes, mode=READ)

    def index_namespace(self, namespace: Namespace) -> list[str]:
        """Give a large namespace a vector index of its own, while everything goes on; the names of those made."""
        none: list[maintenance.VectorIndex] = []
        wanted = self._read(namespace, none, maintenance.index_of)
        known = self.vector_indexes()
        made = []
        for one in wanted:
            with translated(self.place.shown):
                if one.name not in known and maintenance.build(self._connect, self.place.system_role, one):
                    made.append(one.name)
        return made
