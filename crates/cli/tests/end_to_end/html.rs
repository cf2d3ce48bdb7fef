//! Pages of records, as a browser shows them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use wirecost_linux::privilege::{self, skip};

use crate::program::{Finished, Program};

const STUDY: &str = r#"
    title = "Sizes"
    profile = "@stream"
    warm_up = 0
    [set]
    duration = "200ms"
    ramp = "100ms"
    [axes]
    size = ["64", "16k"]
    [repeat]
    times = 2
"#;

fn wirecost(arguments: &[&str]) -> Finished {
    Program::new(arguments).finish()
}

/// A study of two points, each run twice, with its page.
fn study() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("sizes.toml"), STUDY).unwrap();
    let (file, out, page) = (path("sizes.toml"), path("study"), path("study.html"));
    let finished = wirecost(&["study", "run", &file, "--out", &out, "--html", &page, "--quiet"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    (folder, page)
}

/// What a browser makes of a page.
struct Shown {
    dom: String,
}

impl Shown {
    /// Opens a page; `None` where there is no browser, which is told.
    fn of(page: &Path, test: &str) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .args(["--virtual-time-budget=10000", "--allow-file-access-from-files"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}", page.display()))
            .output();
        match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // CI fails for a skip that is not allowed.
                skip(test, "there is no chromium (apt-get install chromium)");
                None
            }
            output => {
                let output = output.unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Some(Self { dom: String::from_utf8_lossy(&output.stdout).into_owned() })
            }
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let begin = format!("{name}=\"");
        self.dom.split(&begin).nth(1)?.split('"').next()
    }

    #[track_caller]
    fn is_all_drawn(&self) {
        assert_eq!(self.attribute("data-errors"), Some("0"), "{:?}", self.attribute("data-error"));
        let charts = self.attribute("data-charts");
        assert!(charts.is_some_and(|charts| charts != "0"), "{charts:?} charts");
        assert_eq!(self.attribute("data-drawn"), charts);
    }
}

/// By how much a page is wider than a phone.
const BEYOND: &str = "page.scrollWidth - page.clientWidth";

/// What JavaScript says of a page (`page`, its root element) that is drawn in a frame as wide as a phone: the answers to
/// these questions, one after the other.
fn in_a_phone<const N: usize>(page: &Path, asked: [&str; N], test: &str) -> Option<[String; N]> {
    let folder = page.parent().unwrap();
    let name = page.file_name().unwrap().to_str().unwrap();
    let asked = asked.map(|question| format!("async () => ({question})")).join(", ");
    let frame = format!(
        "<body><iframe src=\"{name}\" width=380 height=800 style=\"border:0\"></iframe><script>\
         const answers = async page => {{ const said = []; \
         for (const question of [{asked}]) said.push(await question()); \
         return said.join(';') }}; \
         const ask = () => {{ const page = document.querySelector('iframe').contentDocument.documentElement; \
         if (page.dataset.drawn === undefined) setTimeout(ask, 20); \
         else answers(page).then(said => document.body.dataset.said = said) }}; \
         addEventListener('load', ask)</script>"
    );
    let outer = folder.join("phone.html");
    fs::write(&outer, frame).unwrap();
    let shown = Shown::of(&outer, test)?;
    let said = shown.attribute("data-said").expect("the page is not drawn");
    let said: Vec<String> = said.split(';').map(str::to_owned).collect();
    Some(said.try_into().unwrap())
}

fn fits_a_phone(page: &Path, test: &str) {
    if let Some([beyond]) = in_a_phone(page, [BEYOND], test) {
        assert_eq!(beyond, "0");
    }
}

/// What a page would load: nothing.
#[track_caller]
fn loads_nothing(page: &str) {
    let markup = page.split("<script").next().unwrap();
    for load in [" src=", "url(", "@import", "<link", "<iframe"] {
        assert!(!markup.contains(load), "{load}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_pages_of_a_study_and_of_a_comparison_are_drawn_and_fit_a_phone() {
    let (folder, page) = study();
    page_of_a_study(Path::new(&page));
    page_of_a_comparison(folder.path());
}

fn page_of_a_study(page: &Path) {
    let test = "the_pages_of_a_study_and_of_a_comparison_are_drawn_and_fit_a_phone";
    let text = fs::read_to_string(page).unwrap();
    loads_nothing(&text);
    for part in [
        "Throughput by size",
        "Latency by percentile",
        "How often transactions took how long",
        "Hosts, and how they differ",
        "Method",
        "Findings",
        "0002-02",
    ] {
        assert!(text.contains(part), "no {part}");
    }
    // Both points, and each of the four runs in every chart of curves.
    for run in ["0001-01", "0001-02", "0002-01", "0002-02"] {
        assert!(text.contains(&format!("id=run-{run}>")), "{run} is in no list");
    }
    let Some(shown) = Shown::of(page, test) else { return };
    shown.is_all_drawn();
    for run in ["0001-01", "0001-02", "0002-01", "0002-02"] {
        let dot = format!("<a href=\"#run-{run}\" tabindex=\"-1\"><circle class=\"run");
        assert!(shown.dom.contains(&dot), "no dot leads to {run}");
    }
    let Some(said) = in_a_phone(page, [BEYOND, PARTS_OF_CURVES], test) else { return };
    assert_eq!(said, ["0", "true"]);
}

fn page_of_a_comparison(folder: &Path) {
    let test = "the_pages_of_a_study_and_of_a_comparison_are_drawn_and_fit_a_phone";
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (study, page) = (path("study"), path("comparison.html"));
    let compare = ["compare", &study, "--by", "size=64,16k", "--html", &page];
    let finished = wirecost(&compare);
    // Messages of 16 KiB take longer, and move more.
    assert!([0, 1].contains(&finished.code), "{}", finished.stderr);
    assert!(finished.stdout.contains("Verdict"), "{}", finished.stdout);
    let text = fs::read_to_string(&page).unwrap();
    loads_nothing(&text);
    for part in ["B over A: ratios with their intervals", "higher is better", "Other differences"] {
        assert!(text.contains(part), "no {part}");
    }
    // Two runs of a busy machine may differ by more than their sides do.
    let told = ["B differs from A at 1 of 1 point", "No significant difference of B from A"];
    assert!(told.iter().any(|sentence| text.contains(sentence)), "no headline");
    let is_drawn = text.contains("class=\"chart flame\"");
    assert!(is_drawn || text.contains("Differential flame graph: "), "no reason why there is none");
    for run in ["A_200001-01", "B_200002-02"] {
        assert!(text.contains(&format!("id=run-{run}>")), "{run} is in no list");
    }
    let refused = wirecost(&compare);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    let redacted = [compare.as_slice(), &["--force", "--redact"]].concat();
    assert!([0, 1].contains(&wirecost(&redacted).code));
    let text = fs::read_to_string(&page).unwrap();
    for hidden in ["127.0.0.1", folder.to_str().unwrap()] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    assert!(text.contains("path-1/runs/0001-01"));
    let refused = wirecost(&["compare", &study, &study, "--redact"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--html"), "{}", refused.stderr);
    let Some(shown) = Shown::of(Path::new(&page), test) else { return };
    shown.is_all_drawn();
    fits_a_phone(Path::new(&page), test);
}

#[test]
fn the_page_of_a_run_draws_its_series() {
    let test = "the_page_of_a_run_draws_its_series";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (record, page) = (path("record"), path("run.html"));
    let run = ["run", "@stream", "--duration", "1s", "--interval", "100ms", "--quiet"];
    let finished = wirecost(&[run.as_slice(), &["--out", &record, "--html", &page]].concat());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let text = fs::read_to_string(&page).unwrap();
    loads_nothing(&text);
    // What the record lacks is left out, and the page says why.
    assert!(
        text.contains("Throughput over time") && text.contains("waits for a CPU were not timed")
    );
    assert!(text.contains("Latency by percentile") && text.contains("Histogram of latency"));
    let Some(shown) = Shown::of(Path::new(&page), test) else { return };
    shown.is_all_drawn();
    assert!(shown.dom.contains("<canvas"), "no series is drawn");
    let asked = [BEYOND, PANELS, ENLARGED, PARTS_OF_SERIES];
    let Some([beyond, panels, enlarged, parts]) = in_a_phone(Path::new(&page), asked, test) else {
        return;
    };
    assert_eq!(beyond, "0");
    cpus_stand_below_one_another(&text, &panels, test);
    assert_eq!(enlarged, "true true true true true true");
    assert_eq!(parts, "true 0 true 0");
    // From the record alone, the same charts.
    let again = path("again.html");
    let finished = wirecost(&["report", &record, "--format", "html", "--out", &again]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let charts = |text: &str| -> BTreeSet<String> {
        text.split("<figcaption")
            .skip(1)
            .map(|of| of.split("</").next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(charts(&fs::read_to_string(&again).unwrap()), charts(&text));
}

/// How many panels there are, of how many of them something is drawn, and at how many places and widths.
const PANELS: &str = "(panels => [panels.length, panels.filter(of => of.querySelector('canvas')).length, \
        new Set(panels.map(of => { const {left, width} = of.querySelector('.u-over').getBoundingClientRect(); \
        return Math.round(left) + ' ' + Math.round(width) })).size].join(' '))\
        ([...page.querySelectorAll('figure.panel')])";

/// Three panels for each CPU, which begin and end at the same places, and have lines of which many points differ.
#[track_caller]
fn cpus_stand_below_one_another(text: &str, drawn: &str, test: &str) {
    if !privilege::missing(privilege::TRACING).is_empty() {
        assert!(text.contains("which is too coarse for intervals below 100 ms"), "no reason");
        return skip(test, "CPU time cannot be traced here");
    }
    for part in ["utilisation, with its softirq time", ": softirq time", ": interrupt time"] {
        assert!(text.contains(part), "no {part}");
    }
    let [panels, canvases, places] = *drawn.split(' ').collect::<Vec<_>>() else {
        panic!("{drawn}")
    };
    let panels: u32 = panels.parse().unwrap();
    assert!(panels >= 3 && panels.is_multiple_of(3), "{drawn}");
    assert_eq!((canvases, places), (panels.to_string().as_str(), "1"), "{drawn}");
}

/// Whether each curve can be drawn in part, with other ticks, and then as it was.
const PARTS_OF_CURVES: &str = "(drawings => drawings.length > 2 && drawings.every(svg => { \
        const view = page.ownerDocument.defaultView, figure = svg.closest('figure'), \
        whole = figure.querySelector('.whole'), before = svg.innerHTML, \
        [left, , right] = svg.querySelector('.grid').dataset.area.split(' ').map(Number), \
        ticks = () => svg.querySelector('.grid').textContent, first = ticks(), \
        point = (name, share) => { const at = new view.DOMPoint(left + share * (right - left), 100)\
            .matrixTransform(svg.getScreenCTM()); \
            svg.dispatchEvent(new view.PointerEvent(name, {bubbles: true, cancelable: true, clientX: at.x, clientY: at.y})); }; \
        point('pointerdown', 0.55); point('pointermove', 0.8); point('pointerup', 1); \
        const marks = [...svg.querySelectorAll('[data-series] circle')], \
        within = marks.filter(of => { const x = +of.getAttribute('cx'); return x >= left && x <= right }), \
        zoomed = !whole.hidden && ticks() !== first && !svg.querySelector('.chosen') && within.length < marks.length; \
        whole.click(); \
        const press = (key, shiftKey = false) => { const was = svg.innerHTML; \
            figure.dispatchEvent(new view.KeyboardEvent('keydown', {key, shiftKey})); return svg.innerHTML !== was; }, \
        is = whole.hidden && svg.innerHTML === before && press('+') && press('ArrowLeft', true) && press('ArrowLeft', true) && !press('ArrowLeft', true) \
            && !press('ArrowLeft') && press('+') && press('-') && !whole.hidden && press('0'); \
        return zoomed && is && whole.hidden && svg.innerHTML === before; \
        }))([...page.querySelectorAll('svg:has(.grid[data-area] + .base):has(.mean)')])";

/// Whether keys draw a part of charts over time, the same of those with one cursor, and then all again.
const PARTS_OF_SERIES: &str = "(async () => { \
        const view = page.ownerDocument.defaultView, moment = () => new Promise(then => setTimeout(then, 20)), \
        figures = [...page.querySelectorAll('figure:has([data-series-chart])')], \
        shown = () => figures.filter(figure => !figure.querySelector('.whole').hidden).length, \
        press = async (figure, key, shiftKey = false) => { \
            figure.dispatchEvent(new view.KeyboardEvent('keydown', {key, shiftKey})); await moment(); return shown(); }; \
        const alone = figures.find(figure => !figure.matches('.panel')), panel = figures.find(figure => figure.matches('.panel')); \
        const part = await press(alone, '+'), moved = await press(alone, 'ArrowRight', true), all = await press(alone, '0'); \
        const ofPanels = panel ? [await press(panel, '+') >= 3, await press(panel, '-')] : [true, 0]; \
        return [part > 0 && moved === part, all, ...ofPanels].join(' ') })()";

/// Whether a chart and a drawing fill the window by their button, and return by it and where a link leads elsewhere.
const ENLARGED: &str = "['canvas', 'svg.brief'].flatMap(drawing => { \
        const figure = page.querySelector('figure.chart ' + drawing).closest('figure'), \
        section = figure.closest('section'), button = figure.querySelector('.enlarge'), \
        dialog = page.querySelector('dialog'); \
        button.click(); const open = dialog.open && dialog.contains(figure) && dialog.contains(page.querySelector('.tip')); \
        button.click(); dialog.onclose(); \
        const returned = !dialog.open && section.contains(figure), view = page.ownerDocument.defaultView; \
        button.click(); const again = dialog.open; \
        view.location.hash = section.id; view.dispatchEvent(new view.Event('hashchange')); \
        const followed = again && !dialog.open; dialog.onclose(); \
        return [open, returned, followed] }).join(' ')";

#[test]
fn frames_of_a_flame_graph_have_their_colours() {
    let test = "frames_of_a_flame_graph_have_their_colours";
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("run.html");
    let run = ["run", "@stream", "--duration", "1s", "--observe", "functions", "--quiet", "--html"];
    let finished = wirecost(&[run.as_slice(), &[page.to_str().unwrap()]].concat());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    if !fs::read_to_string(&page).unwrap().contains("class=\"chart flame\"") {
        return skip(test, "no functions can be sampled here");
    }
    let colours = "new Set([...page.querySelectorAll('.frame rect')].map(of => \
        page.ownerDocument.defaultView.getComputedStyle(of).fill.replaceAll(' ', ''))).size";
    let keys = "(figure => { const view = page.ownerDocument.defaultView, \
        press = key => figure.dispatchEvent(new view.KeyboardEvent('keydown', {key})), \
        tip = page.querySelector('.tip'), told = () => tip.hidden ? '' : tip.textContent, \
        around = () => figure.querySelectorAll('.around').length; \
        press('ArrowUp'); const all = told(); press('ArrowUp'); press('ArrowUp'); const deep = told(); \
        press('Enter'); const zoomed = around() === 2; press('ArrowDown'); const parent = told(); press('0'); \
        return zoomed && around() === 0 && told() === all && new Set(['', all, deep, parent]).size === 4; \
        })(page.querySelector('figure.flame'))";
    let Some([colours, keys]) = in_a_phone(&page, [colours, keys], test) else { return };
    // Kernel, user space and processes, in shades.
    assert!(colours.parse::<u32>().unwrap() > 2, "{colours} colours");
    assert_eq!(keys, "true");
}

#[test]
fn the_functions_of_two_runs_are_compared_in_colours() {
    let test = "the_functions_of_two_runs_are_compared_in_colours";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (a, b, page) = (path("a"), path("b"), path("comparison.html"));
    for (record, size) in [(&a, "size=64"), (&b, "size=16k")] {
        let run = ["run", "@stream", "--duration", "1s", "--observe", "functions", "--quiet"];
        let finished = wirecost(&[run.as_slice(), &["--var", size, "--out", record]].concat());
        assert_eq!(finished.code, 0, "{}", finished.stderr);
    }
    let finished = wirecost(&["compare", &a, &b, "--html", &page]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let text = fs::read_to_string(&page).unwrap();
    loads_nothing(&text);
    if !text.contains("class=\"chart flame\"") {
        assert!(text.contains("has no sampled functions"), "no reason why there is no graph");
        return skip(test, "no functions can be sampled here");
    }
    assert!(text.contains("Nothing was tested"), "two runs alone were tested");
    assert!(text.contains("What changed in the functions"));
    let Some(shown) = Shown::of(Path::new(&page), test) else { return };
    shown.is_all_drawn();
    assert!(shown.dom.contains("cycles/KByte, B \u{2212} A"));
    let colours = "new Set([...page.querySelectorAll('.frame rect')].map(of => \
        page.ownerDocument.defaultView.getComputedStyle(of).fill.replaceAll(' ', ''))).size";
    let said = in_a_phone(Path::new(&page), [BEYOND, colours], test);
    let Some([beyond, colours]) = said else { return };
    assert_eq!(beyond, "0");
    assert!(colours.parse::<u32>().unwrap() > 2, "{colours} colours");
}

#[test]
fn the_page_of_a_cost_model_is_drawn_and_fits_a_phone() {
    let test = "the_page_of_a_cost_model_is_drawn_and_fits_a_phone";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let wide = STUDY.replace("[\"64\", \"16k\"]", "[\"64\", \"1k\", \"4k\", \"16k\", \"64k\"]");
    fs::write(path("sizes.toml"), wide).unwrap();
    let (file, out, page) = (path("sizes.toml"), path("study"), path("costs.html"));
    let finished = wirecost(&["study", "run", &file, "--out", &out, "--quiet"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let finished = wirecost(&["explain", &out, "--html", &page]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let text = fs::read_to_string(&page).unwrap();
    loads_nothing(&text);
    for part in ["all busy cycles go to: ", "Costs as shares of all cycles", "Errors of the model"]
    {
        assert!(text.contains(part), "no {part}");
    }
    assert!(text.contains("by size, measured and modelled") && text.contains("id=run-0005-02>"));
    let Some(shown) = Shown::of(Path::new(&page), test) else { return };
    shown.is_all_drawn();
    fits_a_phone(Path::new(&page), test);
}

#[test]
fn a_page_is_not_overwritten_and_names_are_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (record, page) = (path("secret-record"), path("run.html"));
    let finished = wirecost(&["run", "@rr", "--duration", "300ms", "--quiet", "--out", &record]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    fs::write(&page, "mine").unwrap();
    let report = ["report", &record, "--format", "html", "--out", &page, "--redact"];
    let refused = wirecost(&report);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
    let finished = wirecost(&[report.as_slice(), &["--force"]].concat());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let text = fs::read_to_string(&page).unwrap();
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for hidden in ["secret-record", "127.0.0.1", folder.path().to_str().unwrap()] {
        assert!(!text.contains(hidden), "{hidden}");
    }
    assert!(!text.contains(&format!(">{}<", machine.trim())), "{machine}");
    assert!(text.contains("host-1") && text.contains("path-1"));
    let refused = wirecost(&["report", &record, "--redact"]);
    assert_eq!(refused.code, 2);
}

#[test]
fn a_study_that_has_just_begun_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("study");
    fs::create_dir_all(study.join("runs")).unwrap();
    fs::write(study.join("study.toml"), STUDY).unwrap();
    let finished = wirecost(&["report", study.to_str().unwrap(), "--format", "html"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let text = &finished.stdout;
    assert!(text.contains("Nothing has been measured yet"), "{text}");
    assert!(text.contains("2 points have no run yet"), "{text}");
}
