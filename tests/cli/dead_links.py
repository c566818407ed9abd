"""dead_links.py FOLDER: relative links in the Markdown files below FOLDER that lead nowhere, a line each."""
import pathlib
import re
import sys

for document in sorted(pathlib.Path(sys.argv[1]).rglob("*.md")):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", document.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target) and not (document.parent / target).exists():
            print(f"{document}: {target}")
