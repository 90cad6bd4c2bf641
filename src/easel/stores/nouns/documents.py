"""Versions of documents: the steps that both databases have in common, within the transaction of a change.

The rules are in the statements of `documents.sql`.
"""

from collections.abc import Mapping, Sequence

from easel.core.document.document import Reported
from easel.core.stream.log import LAST_CURSOR
from easel.ids import AccountId
from easel.stores.nouns.statements import Steps

Ids = Mapping[str, str]  # account_id and canvas_id


def promote(ids: Ids, max_versions: int) -> Steps[bool]:
    """Make the drafts versions, unless the newest version has the current text. Returns whether it did. CT-35

    The older drafts become versions too, so that a later report of them adds none after the current text.
    """
    [hashes] = yield "compare_hashes", ids
    if hashes["draft_hash"] in (None, hashes["artefact_hash"]):
        return False
    yield from _add_versions(ids, LAST_CURSOR, max_versions)
    return True


def report_drafts(account_id: AccountId, reported: Sequence[Reported], max_versions: int) -> Steps[None]:
    """Mark drafts as reported by hidden messages and make them versions. CT-34, CT-35"""
    for drafts in sorted(reported, key=lambda drafts: drafts.canvas_id):
        ids = {"account_id": account_id, "canvas_id": drafts.canvas_id}
        yield "lock_document", ids
        yield from _add_versions(ids, drafts.draft_no, max_versions)
        yield "mark_reported", {**ids, "draft_no": drafts.draft_no}
        yield "note_unreported", ids
        yield "delete_reported_drafts", ids


def _add_versions(ids: Ids, draft_no: int, max_versions: int) -> Steps[None]:
    """Make the drafts up to a number versions, each if it differs from the version before. CT-35"""
    yield "rt_append_node_to_ref_v1", {**ids, "draft_no": draft_no}
    yield "mark_versioned", {**ids, "draft_no": draft_no}
    yield "trim_versions", {**ids, "max_versions": max_versions}
