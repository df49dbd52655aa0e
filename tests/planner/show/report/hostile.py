"""A scenario whose names try to break out of a page."""

from __future__ import annotations

from tests.by_hand import TEXT

NAMES = {
    "by-hand": '</title><script>window.hacked = "scenario"</script>',
    "m": "</script><script>window.hacked = 'model'</script><!--",
    "w": '"><img src=x onerror="window.hacked = 1">',
    "a": "</select><svg onload=window.hacked=2>{{ 7 * 7 }}",
}


def text() -> str:
    """Return the scenario solved by hand under these names."""
    quoted = {name: "'" + hostile.replace("'", "''") + "'" for name, hostile in NAMES.items()}
    return (
        TEXT.replace("name: by-hand", f"name: {quoted['by-hand']}")
        .replace("  m: {weights", f"  {quoted['m']}: {{weights")
        .replace("models: [m]", f"models: [{quoted['m']}]")
        .replace("  w:\n", f"  {quoted['w']}:\n")
        .replace("workflow: w}", f"workflow: {quoted['w']}}}")
        .replace("      a: {", f"      {quoted['a']}: {{")
        .replace("after: [a]", f"after: [{quoted['a']}]")
    )
