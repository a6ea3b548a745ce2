"""The report in a real browser: no error, no request, working controls; and nothing in a name becomes markup."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from exported_heads import CLASSES, RECIPE, classifier_of, rows
from ghofl import HeadSpec, Total
from ghofl.cli import app
from ghofl.outbox import Embedded, outgoing
from ghofl.report.charts import INK, LINE, TITLES, charts_of
from ghofl.report.findings import Findings, SiteLine, judge
from ghofl.report.page import page
from ghofl.simulation.simulate import Dataset, simulate

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def findings(rng):
    x, y = rows(rng)
    sites = {"north": slice(0, 250), "south": slice(250, 600)}
    messages = [outgoing(RECIPE, Embedded(x[part], y[part]), name).message for name, part in sites.items()]
    total = Total.of(messages, RECIPE)
    found = Findings.of_total(total, f"Animals {HOSTILE}", messages)
    return found.judge_heads([classifier_of(head, RECIPE, rng) for head in ("lda", "nb")], *rows(rng, 400))


def test_findings_are_what_the_total_and_the_rows_say(findings):
    assert [(s.name, s.rows, sum(s.counts)) for s in findings.sites] == [("north", 250, 250), ("south", 350, 350)]
    assert sum(findings.counts) == 600
    assert [h.name for h in findings.heads] == ["lda", "nb"]
    assert findings.judged.accuracy == max(h.accuracy for h in findings.heads)
    assert sum(map(sum, findings.judged.counts)) == 400
    assert sum(n for _, _, n in findings.judged.calibration) == 400
    assert findings.view.names == CLASSES[:4]  # the fifth class has no rows
    assert "no differential privacy guarantee" in findings.guarantee


def test_bins_of_confidence_add_up():
    found = judge("x", np.array([[0.95, 0.05], [0.91, 0.09], [0.4, 0.6]]), np.array([0, 1, 1]))
    assert found.calibration == ((0.6, 1.0, 1), (pytest.approx(0.93), 0.5, 2))
    assert found.counts == ((1, 0), (1, 1))


def test_no_name_becomes_markup(findings):
    bad = replace(
        findings,
        classes=(HOSTILE, "a", "b", "c", "d"),
        sites=(replace(findings.sites[0], name=HOSTILE),),
        heads=(replace(findings.heads[0], name=HOSTILE),),
        view=replace(findings.view, names=(HOSTILE, "a", "b", "c")),
    )
    text = page(bad)
    assert "<img" not in text
    assert text.count("</script>") == 2, "of the figures and of the controls"


def test_charts_are_images_with_a_title_in_the_colours_of_the_page_and_share_no_id(findings):
    charts = charts_of(findings)
    ids = [found for svg in charts.values() for found in re.findall(r' id="([^"]+)"', svg)]
    assert len(set(ids)) == len(ids)
    for name, svg in charts.items():
        element = ElementTree.fromstring(svg)
        title = element.find("{http://www.w3.org/2000/svg}title")
        assert (element.get("role"), element.get("aria-labelledby")) == ("img", title.get("id"))
        assert title.text.startswith(TITLES[name][0])
        assert "currentColor" in svg
        assert not {INK, LINE, "#000000", "<style"} & set(re.findall(r"#[0-9a-f]{6}|<style", svg))


def test_a_page_is_the_same_to_the_byte_each_time_and_small(findings):
    assert page(findings) == page(findings)
    assert len(page(findings)) < 300_000


@pytest.mark.parametrize("name", ["$x^2$", "病院 🏥", r"\alpha_{1}"])
def test_a_name_is_shown_as_it_is_written(findings, name):
    """Neither as a formula nor with a warning about the font, which is the browser's."""
    svg = charts_of(replace(findings, heads=(replace(findings.heads[0], name=name), findings.heads[1])))["accuracy"]
    assert name in texts_of(svg)


def texts_of(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_command_writes_the_page_from_files(tmp_path, rng):
    x, y = rows(rng)
    message = outgoing(RECIPE, Embedded(x, y), "north").message
    (tmp_path / "north.ghofl").write_bytes(message.to_bytes())
    Total.of([message], RECIPE).save(tmp_path / "total.ghofl")
    classifier_of("lda", RECIPE, rng).save(tmp_path / "lda.safetensors")
    np.savez(tmp_path / "test.npz", x=x, y=np.array(CLASSES)[y])
    files = [str(tmp_path / name) for name in ("total.ghofl", "north.ghofl", "lda.safetensors", "test.npz", "out.html")]
    total, north, head, test, out = files
    done = CliRunner().invoke(app, ["report", total, north, "--head", head, "--data", test, "-o", out, "--json", "-"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["heads"] == ["lda"]
    assert "Who took part" in (tmp_path / "out.html").read_text()


def opened(browser, text, path, width, scheme):
    """Open a page in a window, and return the ids of its charts once nothing failed and nothing was fetched."""
    from selenium.webdriver.common.by import By

    path.write_text(text, encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get_log("performance")
    browser.get(path.as_uri())
    drawn = browser.find_elements(By.CSS_SELECTOR, ".chart svg")
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    return {svg.find_element(By.XPATH, "ancestor::div[@class and @id]").get_attribute("id") for svg in drawn}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_in_a_browser_nothing_fails_nothing_is_fetched_and_tables_sort(findings, browser, tmp_path, width, scheme):
    from selenium.webdriver.common.by import By

    assert len(opened(browser, page(findings), tmp_path / "report.html", width, scheme)) == 5
    ink = browser.execute_script("return getComputedStyle(document.body).color")
    assert ink == ("rgb(27, 31, 36)" if scheme == "light" else "rgb(230, 233, 236)")
    (table,) = [t for t in browser.find_elements(By.TAG_NAME, "table") if "rows behind" in t.text]
    button = table.find_elements(By.CSS_SELECTOR, "th button")[1]
    seen = []
    for _ in range(2):
        browser.execute_script("arguments[0].click()", button)
        cells = table.find_elements(By.CSS_SELECTOR, "tbody td:nth-child(2)")
        seen.append([int(cell.get_attribute("textContent").replace(",", "") or 0) for cell in cells])
    assert seen[0] == sorted(seen[0])
    assert seen[1] == sorted(seen[1], reverse=True)


def simulated(rng, clients=3):
    x, y = rows(rng)
    recipe = replace(RECIPE, classes=CLASSES[:4])
    data = Dataset(x[:400], y[:400], x[400:], y[400:], recipe.classes)
    specs = HeadSpec.parse_list("lda, nb, rda(blend=0.5)")
    parts = np.array_split(np.arange(400), clients)
    return simulate(data, parts, recipe, specs)


def test_findings_of_a_simulation_are_its_own_figures(rng):
    result = simulated(rng)
    found = Findings.of_simulation(result, "Animals")
    assert {line.name: line.accuracy for line in found.heads} == {
        name: head.accuracy for name, head in result.heads.items()
    }
    assert [line.payload_bytes for line in found.heads] == [head.payload_bytes for head in result.heads.values()]
    assert found.judged.accuracy == max(head.accuracy for head in result.heads.values())
    assert found.judged.head in result.heads
    assert np.array([site.counts for site in found.sites]).sum(axis=0).tolist() == list(found.counts)
    assert [site.rows for site in found.sites] == [len(part) for part in result.federation.parts]


@pytest.mark.slow
def test_the_page_of_a_simulation_works_in_a_browser(rng, browser, tmp_path):
    text = page(Findings.of_simulation(simulated(rng), "Animals"))
    charts = opened(browser, text, tmp_path / "simulation.html", 1200, "light")
    assert charts == {"payload", "confusion", "calibration", "view", "labels"}


def test_simulate_and_demo_write_a_page_where_one_is_asked_for_and_only_there(rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = rows(rng)
    np.savez("animals.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
    words = ["simulate", "--embeddings", "animals.npz", "--clients", "3", "--heads", "lda,nb"]
    done = CliRunner().invoke(app, [*words, "--report", "page.html", "--json", "-"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["heads"].keys() == {"lda", "nb"}
    assert "animals over 3 clients" in (tmp_path / "page.html").read_text()
    refused = CliRunner().invoke(app, [*words, "--report", "page.html"])
    assert refused.exit_code == 2
    assert "exists already" in refused.output
    assert CliRunner().invoke(app, words).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"animals.npz", "page.html"}


def test_one_head_is_not_compared_with_itself(findings):
    assert not {"payload", "accuracy"} & charts_of(replace(findings, heads=findings.heads[:1])).keys()


def test_heads_are_drawn_against_bytes_only_where_these_differ(findings):
    assert {"payload", "accuracy"} & charts_of(findings).keys() == {"accuracy"}
    small = replace(findings.heads[1], payload_bytes=1)
    found = charts_of(replace(findings, heads=(findings.heads[0], small)))
    assert {"payload", "accuracy"} & found.keys() == {"payload"}


def test_a_column_without_entries_is_not_shown(findings):
    """Bytes of messages that were not given, and what a simulation does not clip."""
    bare = tuple(SiteLine(site.name, site.rows) for site in findings.sites)
    assert "bytes sent" in page(findings)
    assert not {"bytes sent", "clipped, %"} & set(re.findall(r"<button>([^<]+)", page(replace(findings, sites=bare))))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "medium"), [(1200, "screen"), (400, "screen"), (673, "print")])
def test_no_table_is_cut_off_on_a_screen_a_phone_and_paper(findings, browser, tmp_path, width, medium):
    """With the measures of two classes, which are the most, and the longest name of a head; 673 pixels are A4 in its margins."""
    wide = tuple(
        replace(head, name="sketched_qda", payload_bytes=12_345_678, metrics={**head.metrics, "auc": 0.5})
        for head in findings.heads
    )
    opened(browser, page(replace(findings, heads=wide)), tmp_path / "wide.html", width, "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium})
    hidden = "return [...document.querySelectorAll('.wide')].map(box => box.scrollWidth - box.clientWidth)"
    assert max(browser.execute_script(hidden)) <= 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
