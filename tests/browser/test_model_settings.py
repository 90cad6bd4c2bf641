"""The form of the model on the home page: saved with a visible result, and no key in the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.console import open_session
from tests.edges.http.live import LiveEasel, capture_log
from tests.requirements import rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

KEY = "sk-ant-0123456789-distinctive"


@pytest_asyncio.fixture(loop_scope="session")
async def easel(tmp_path: Path) -> AsyncIterator[LiveEasel]:
    """An Easel of its own: the others' model must not change."""
    with capture_log(), LiveEasel(tmp_path) as live:
        yield live


async def open_form(page: Page, easel: LiveEasel) -> None:
    await open_session(page, easel)
    await page.locator("#model-settings summary").click()


@rule("RX-07")
async def test_model_is_chosen_with_a_key_that_never_returns_to_the_page(
    page: Page, easel: LiveEasel
) -> None:
    await open_form(page, easel)
    await expect(page.locator("#model-now")).to_have_text("scripted")
    await expect(page.locator("#examples")).to_be_visible()
    await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "None")
    await page.get_by_label("Provider").select_option("anthropic")
    await page.get_by_label("API key").fill(KEY)
    await page.get_by_label("Reasoning effort").select_option("low")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#model-result")).to_contain_text("Saved.")
    await expect(page.locator("#model-now")).to_contain_text("(anthropic)")
    await expect(page.locator("#examples")).to_be_hidden()  # scripts are of no use to it
    await expect(page.locator("#welcome")).to_contain_text("Write what you need")
    await expect(page.get_by_label("API key")).to_have_value("")
    await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "sk-…tive")
    shown = easel.get("/api/settings").json()
    assert (shown["provider"], shown["reasoning_effort"]) == ("anthropic", "low")

    await page.reload()
    await page.locator("#model-settings summary").click()
    await expect(page.get_by_label("Provider")).to_have_value("anthropic")
    await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "sk-…tive")
    assert KEY not in await page.content()

    await page.get_by_role("button", name="Remove key").click()
    await expect(page.locator("#model-result")).to_have_text("The key was removed.")
    await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "None")
    assert easel.get("/api/settings").json()["api_key"] is None


async def test_bad_value_and_failed_check_are_shown(page: Page, easel: LiveEasel) -> None:
    await open_form(page, easel)
    await page.get_by_role("button", name="Test").click()
    await expect(page.locator("#model-result")).to_contain_text("needs no key")
    await page.get_by_label("Provider").select_option("openai-chat")
    await page.get_by_label("Base URL").fill("http://me:pw@127.0.0.1:1/v1")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#model-problem")).to_contain_text("must not contain a user name")
    await page.get_by_label("Base URL").fill("http://127.0.0.1:1/v1")
    await page.get_by_label("Model", exact=True).fill("llama")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#model-result")).to_contain_text("Saved.")
    await page.get_by_role("button", name="Test").click()
    await expect(page.locator("#model-problem")).to_contain_text("there is no route to")
    # A model and an address belong to their provider.
    await page.get_by_label("Provider").select_option("gemini")
    await expect(page.get_by_label("Model", exact=True)).to_have_value("")
    await expect(page.get_by_label("Base URL")).to_have_value("")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#model-now")).to_contain_text("(gemini)")


async def test_default_of_the_host_is_shown_and_not_copied(page: Page, tmp_path: Path) -> None:
    host = {"provider": "anthropic", "api_key": "sk-host-0123456789-wxyz", "model": "claude-x"}
    with capture_log(), LiveEasel(tmp_path, settings=host) as easel:
        await open_form(page, easel)
        await expect(page.locator("#model-now")).to_have_text("claude-x (anthropic)")
        await expect(page.get_by_label("Provider")).to_have_value("")
        await expect(page.get_by_label("API key")).to_have_attribute("placeholder", "set (of this host)")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("#model-result")).to_contain_text("Saved.")
        assert easel.get("/api/settings").json()["sources"]["model"] == "host"
