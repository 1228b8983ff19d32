"""In a real browser the page logs nothing, shows every picture and is no wider than the window."""

import html
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.report.__main__ import report
from tests.report.folders import PREDICTED, record, structure, write_run

pytest.importorskip("matplotlib")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")

PROBE = """<script>
addEventListener("load", () => {
  const images = [...document.images];
  parent.postMessage({
    whole: images.filter(image => image.complete && image.naturalWidth > 0).length,
    shown: [...new Set(images.filter(image => image.clientWidth > 0).map(image => image.className))],
    num_shown: images.filter(image => image.clientWidth > 0).length,
    window: innerWidth,
    content: document.documentElement.scrollWidth,
    scroll: [...document.querySelectorAll(".scroll")].some(table => table.scrollWidth > table.clientWidth),
    paper: getComputedStyle(document.body).backgroundColor,
    columns: getComputedStyle(document.querySelector(".figures")).gridTemplateColumns.split(" ").length,
  }, "*");
});
</script></body>"""

WINDOW = """<!doctype html><iframe src="probed.html" width="{width}" height="900" style="border: 0"></iframe>
<script>addEventListener("message", event => {{
  const element = document.createElement("pre");
  element.textContent = JSON.stringify(event.data);
  document.body.append(element);
}});</script>"""
"""A frame stands for a window of any width, since the browser's own window cannot be narrow."""

DARK = "--blink-settings=preferredColorScheme=0"


def browse(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    own = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr")
    command = [str(CHROMIUM), *own, f"--user-data-dir={folder / 'user'}", "--virtual-time-budget=10000", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def look(page: Path, width: int, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """Measurements of the page in a window of ``width`` pixels, and the lines on the page's console."""
    folder = page.parent
    (folder / "probed.html").write_text(page.read_text().replace("</body>", PROBE))
    (folder / "window.html").write_text(WINDOW.format(width=width))
    done = browse(folder, "--window-size=1400,1000", "--dump-dom", *flags, f"file://{folder / 'window.html'}")
    (measured,) = re.findall("<pre>(.*?)</pre>", done.stdout)
    return json.loads(html.unescape(measured)), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    told, names = record(predicted=PREDICTED), [f"a_rather_long_name_of_the_run_{k}" for k in range(3)]
    runs = [write_run(folder / name, told, arrays=structure()) for name in names]
    return report([*map(str, runs), f"out={folder / 'page'}"])


def num_pictures(page: Path) -> int:
    return len(list((page.parent / "report_figures").glob("*_dark.png")))


@pytest.mark.parametrize(("scheme", "flags", "paper"), [("light", (), 255), ("dark", (DARK,), 20)])
@pytest.mark.parametrize(("width", "columns"), [(360, 1), (1200, 2)])
def test_on_a_phone_and_on_a_screen(
    page: Path, width: int, columns: int, scheme: str, flags: tuple[str, ...], paper: int
) -> None:
    seen, console = look(page, width, *flags)
    assert console == []
    assert seen["whole"] == 2 * num_pictures(page) > 30
    assert (seen["shown"], seen["num_shown"]) == ([scheme], num_pictures(page))
    assert seen["window"] == width >= seen["content"]  # wide tables scroll by themselves
    assert seen["scroll"] or width > 360
    assert seen["columns"] == columns
    assert seen["paper"].startswith(f"rgb({paper}, ")


def test_on_paper_it_is_light_whatever_the_screen_is(page: Path) -> None:
    browse(page.parent, DARK, f"--print-to-pdf={page.parent / 'page.pdf'}", f"file://{page}")
    content = (page.parent / "page.pdf").read_bytes()
    pattern = rb"/Subtype /Image\s.*?/Filter /FlateDecode.*?/Length (\d+).*?stream\r?\n"
    starts = [(match.end(), int(match[1])) for match in re.finditer(pattern, content, re.DOTALL)]
    pictures = [np.frombuffer(zlib.decompress(content[at : at + length]), np.uint8) for at, length in starts]
    assert len(pictures) == num_pictures(page) and all(picture.mean() > 128 for picture in pictures)
    assert len(re.findall(rb"/Type /Page\b", content)) > 3


def test_a_page_with_defects_is_found_out(tmp_path: Path) -> None:
    """``look`` finds a broken image, content wider than the window and a message on the console."""
    page = tmp_path / "report.html"
    page.write_text(
        '<!doctype html><body><div class="figures"><img src="data:image/png;base64,AAAA"></div>'
        '<div style="width: 2000px">wide</div><script>console.error("here")</script></body>'
    )
    seen, console = look(page, 360)
    assert seen["whole"] == 0 and seen["content"] > 360 and len(console) == 1
