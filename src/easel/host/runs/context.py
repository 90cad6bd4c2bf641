"""The context of a run: the earlier turns of its session, loaded once per run, and the system prompt.

Owns what is loaded and what is kept in memory: a finished turn never changes, so its decoded form is reused
by the next runs of the session. A model that needs no history (`is_remote` is false) costs no statement.
Long histories are decoded in a thread. Which turns are chosen is decided in `core/run/context.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from easel.core.document.hidden_update import format_read_again, format_text_update
from easel.core.model.choice import ModelChoice
from easel.core.run.context import (
    DOCUMENT_SHARE,
    IMAGE_TOKENS,
    KEPT_SHARE,
    MAX_LISTED_TURNS,
    OwnSteps,
    choose_start,
    estimate_tokens,
    keep_valid_data,
    omission_note,
    prefix_after,
    prefix_digest,
)
from easel.core.run.conversation import ContextStart, Conversation, Image, Step, Turn, to_conversation
from easel.core.run.instructions import Instructions, OfferedTool
from easel.core.run.progress import Progress
from easel.core.run.prompt import build_prompt
from easel.core.run.run import Claim
from easel.core.tool.definition import ToolDefinition
from easel.host.ports import DocumentStore, Model
from easel.host.runs.images import ImageReader
from easel.host.runs.log_writer import MAX_SHORT_TEXT
from easel.host.runs.turns import History, LoadedTurn, TurnImages, TurnLoader
from easel.ids import CanvasId, RunId

MAX_WHOLE_DOCUMENTS = 10  # whose texts replace updates that are left out; the model must read the others
MAX_NAMED_DOCUMENTS = 100


@dataclass(frozen=True, slots=True)
class ContextSource:
    """The sources of contexts. `documents` is None if the tools for documents are turned off. CT-02"""

    turns: TurnLoader
    images: ImageReader
    documents: DocumentStore | None
    max_result_bytes: int  # of a tool result; a larger one is shortened


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The part of a conversation before the run's own steps."""

    note: str | None
    turns: Sequence[LoadedTurn]
    turn_images: TurnImages
    has_updates: bool  # whether the updates of the turns are given
    updates: tuple[str, ...]
    images: tuple[Image, ...]
    first: RunId  # of the first turn; part of the prefix
    whole_texts_of: RunId | None  # the run, if it is given texts of documents instead of all updates
    step_tokens: int  # that the run's own steps may take


class RunContext:
    """The context of a run. The beginning that an earlier attempt used does not change."""

    def __init__(
        self, source: ContextSource, claim: Claim, updates: tuple[str, ...], progress: Progress
    ) -> None:
        self._source = source
        self._claim = claim
        self._message = claim.input_text
        self._updates = updates
        self.start = progress.start
        self.prefix = ""
        self._instructions = progress.instructions
        self._are_instructions_stored = progress.instructions is not None
        self._tools: Sequence[ToolDefinition] = ()  # as the instructions have them
        self._loaded: _Loaded | None = None
        self._model = ""
        self._turns: tuple[Turn, ...] = ()  # with the provider data that is valid after this prefix
        self._own = OwnSteps(0, 0)
        self._beginning = ""  # digest of everything before the run's own steps

    async def build(
        self, choice: ModelChoice, model: Model, tools: Sequence[ToolDefinition], steps: Sequence[Step]
    ) -> tuple[Conversation, Sequence[ToolDefinition]]:
        """Return the conversation and the tools of this step. The tools stay those of the run's first step.

        A provider rejects a signature after other tools, so they stay also when a node comes or leaves.
        """
        if not model.is_remote:
            return to_conversation(self._message, steps), tools
        if self._instructions is None:
            self._instructions = self._make_instructions(tools)
        given = self._instructions
        if self._loaded is None:
            self._tools = tuple(ToolDefinition(*tool) for tool in given.tools)
            self._loaded = await self._load(choice.token_budget, given.system)
            self._own = OwnSteps(self._source.max_result_bytes, self._loaded.step_tokens)
        loaded = self._loaded
        used = f"{choice.provider}/{choice.model}"
        if used != self._model:
            self._model = used
            known = prefix_digest(given.system, loaded.note, loaded.first, given.tools, used)
            self._beginning = prefix_after(known, loaded.whole_texts_of, loaded.turn_images.first)
            self._turns = self._valid_turns(loaded)
        added = steps[len(self._own.steps) :]
        is_long = sum(len(step.text) for step in added) > MAX_SHORT_TEXT
        await asyncio.to_thread(self._add, added) if is_long else self._add(added)
        self.prefix = prefix_after(self._beginning, self._own.shortened)
        conversation = Conversation(
            self._message,
            keep_valid_data(tuple(self._own.steps), self.prefix),
            given.system,
            loaded.note,
            self._turns,
            loaded.updates,
            loaded.images,
        )
        return conversation, self._tools

    def _add(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._own.add(step)

    def take_unstored(self) -> Instructions | None:
        """Return the instructions once, for the first step that is logged: later attempts read them there."""
        if self._are_instructions_stored:
            return None
        self._are_instructions_stored = self._instructions is not None
        return self._instructions

    def _make_instructions(self, tools: Sequence[ToolDefinition]) -> Instructions:
        offered = [
            OfferedTool(tool.name, tool.description, tool.schema)
            for tool in sorted(tools, key=lambda tool: tool.name)
        ]
        has_documents = self._source.documents is not None
        return Instructions(build_prompt([tool.name for tool in offered], documents=has_documents), offered)

    async def _load(self, budget: int, system: str) -> _Loaded:
        source, claim = self._source, self._claim
        images = await source.images.read(claim.account_id, self._message)
        own = sum(map(estimate_tokens, (system, self._message))) + IMAGE_TOKENS * len(images)
        updates, given = self._updates, sum(map(estimate_tokens, self._updates))
        history = await source.turns.load(claim, budget, self.start)
        documents = source.documents if claim.has_document else None
        is_whole = documents is not None and self._must_send_texts(history, own, given, budget)
        whole: Mapping[CanvasId, str | None] = {}
        if documents is not None and is_whole:
            # Updates are missing or too large, so whole texts replace all of them. CT-52
            whole, updates = await self._whole_documents(documents, budget // DOCUMENT_SHARE)
            given = max(budget // DOCUMENT_SHARE, sum(map(estimate_tokens, updates)))
        has_updates = source.documents is not None and not is_whole
        sizes = [loaded.tokens if has_updates else loaded.tokens_without_updates for loaded in history.turns]
        at = history.start if self.start else choose_start(sizes, budget, own + given, history.start)
        kept = history.turns[at:]
        is_cut = at > 0 or history.has_more
        first = kept[0].turn.run_id if kept else claim.run_id
        note = await self._note(first) if is_cut else None
        turn_images = await source.turns.read_images(claim, kept, images)
        self.start = replace(self.start or ContextStart(first if is_cut else None), documents=whole)
        before = own + given + sum(sizes[at:]) + estimate_tokens(note or "")
        return _Loaded(
            note,
            kept,
            turn_images,
            has_updates,
            updates,
            images,
            first,
            claim.run_id if is_whole else None,
            max(budget - before, budget // KEPT_SHARE),
        )

    def _must_send_texts(self, history: History, own: int, given: int, budget: int) -> bool:
        """Whether the updates of the turns have a hole, or the updates do not fit."""
        if given > budget // DOCUMENT_SHARE or history.start > 0 or history.has_more:
            return True
        if self.start is not None:
            return bool(self.start.documents)
        return own + given + sum(history.sizes) > budget

    def _valid_turns(self, loaded: _Loaded) -> tuple[Turn, ...]:
        turns = (
            replace(turn, images=images) if (images := loaded.turn_images.of(turn.run_id)) else turn
            for turn in (given.after(self._beginning) for given in loaded.turns)
        )
        return tuple(turns) if loaded.has_updates else tuple(map(_without_updates, turns))

    async def _note(self, first: RunId) -> str | None:
        omitted = await self._source.turns.list_omitted(self._claim, first, MAX_LISTED_TURNS + 1)
        return omission_note(omitted[-MAX_LISTED_TURNS:], has_more=len(omitted) > MAX_LISTED_TURNS)

    async def _whole_documents(
        self, documents: DocumentStore, max_tokens: int
    ) -> tuple[Mapping[CanvasId, str | None], tuple[str, ...]]:
        """Return the revisions and the texts of the session's documents at the start of the run.

        Those that do not fit are named in one update, and have no revision. A later attempt of the run gets
        the same texts.
        """
        account_id, start = self._claim.account_id, self.start or ContextStart()
        names = list(start.documents) or await self._list_documents(documents)
        whole: dict[CanvasId, str | None] = dict.fromkeys(names)
        updates: list[str] = []
        for name in names[:MAX_WHOLE_DOCUMENTS]:
            if start.documents:
                revision_id = start.documents[name]
                text = revision_id and await documents.read_revision(account_id, name, revision_id)
            else:
                document = await documents.get(account_id, name)
                revision_id, text = (document.revision_id, document.text) if document else (None, None)
            update = None if text is None else format_text_update(text, name)
            if update is not None and (tokens := estimate_tokens(update)) <= max_tokens:
                max_tokens -= tokens
                whole[name] = revision_id
                updates.append(update)
        if unread := [name for name, revision_id in whole.items() if revision_id is None]:
            updates.append(format_read_again(unread, has_more=len(names) >= MAX_NAMED_DOCUMENTS))
        return whole, tuple(updates)

    async def _list_documents(self, documents: DocumentStore) -> list[CanvasId]:
        """Return the documents of the session, those that changed before this message first."""
        claim = self._claim
        names = await documents.list_newest(claim.account_id, claim.session_id, MAX_NAMED_DOCUMENTS)
        # The update of a document that is not the newest names it.
        return sorted(names, key=lambda name: not any(f"--- {name}\n" in update for update in self._updates))


def _without_updates(turn: Turn) -> Turn:
    if not turn.updates_before and not turn.updates_after:
        return turn
    return replace(turn, updates_before=(), updates_after=())
