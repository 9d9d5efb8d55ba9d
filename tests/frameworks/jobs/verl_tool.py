"""A tool of verl's agent loop, which loads this file as a module of its own."""

from __future__ import annotations

import asyncio

from verl.tools.function_tool import function_tool


@function_tool
async def look_up(word: str) -> str:
    """Look up a word.

    Args:
        word: to look up.
    """
    await asyncio.sleep(0.1)
    return f"found {word}"
