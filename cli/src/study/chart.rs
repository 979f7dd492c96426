//! Pictures: curves over two axes, and bars, as SVG.

use std::fmt::Write as _;

use serde::Serialize;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// What is left of the picture, right, above and below its axes.
const MARGINS: [f64; 4] = [70.0, 20.0, 40.0, 50.0];
/// Lines that differ to most eyes, in print too.
const COLOURS: [&str; 7] = [
    "#0b6bb0", "#d1495b", "#2a9d4a", "#8a5cc2", "#c77f0a", "#3d3d3d", "#0aa5a5",
];
const BAR: f64 = 16.0;

/// A picture of a study.
#[derive(Debug, Serialize)]
pub(super) struct Picture {
    /// The file's name, without its ending.
    pub(super) name: String,
    pub(super) title: String,
    /// What the values across are; of bars, nothing.
    pub(super) x: String,
    pub(super) y: String,
    pub(super) kind: Kind,
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Both axes logarithmic.
    Curves,
    /// The values are those of these names, in their order.
    Bars(Vec<String>),
}

#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl Series {
    pub(super) fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        let name = name.into();
        Series { name, points }
    }

    /// A value for each name of bars.
    pub(super) fn bars(name: impl Into<String>, values: &[f64]) -> Series {
        let places = values.iter().enumerate();
        Series::new(name, places.map(|(n, &value)| (n as f64, value)).collect())
    }
}

impl Picture {
    pub(super) fn svg(&self) -> String {
        match &self.kind {
            Kind::Curves => self.curves(),
            Kind::Bars(names) => self.bars(names),
        }
    }

    fn curves(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let across = Scale::of(
            points().map(|point| point.0),
            [MARGINS[0], WIDTH - MARGINS[1]],
        );
        let up = Scale::of(
            points().map(|point| point.1),
            [HEIGHT - MARGINS[3], MARGINS[2]],
        );
        let mut svg = self.begin(HEIGHT + 18.0 * self.series.len() as f64);
        let [left, right, top, bottom] = [
            MARGINS[0],
            WIDTH - MARGINS[1],
            MARGINS[2],
            HEIGHT - MARGINS[3],
        ];
        for mark in across.marks() {
            let x = across.place(mark);
            line(&mut svg, [x, top, x, bottom], "#ddd");
            text(&mut svg, [x, bottom + 16.0], "middle", &short(mark));
        }
        for mark in up.marks() {
            let y = up.place(mark);
            line(&mut svg, [left, y, right, y], "#ddd");
            text(&mut svg, [left - 6.0, y + 4.0], "end", &short(mark));
        }
        text(
            &mut svg,
            [(left + right) / 2.0, bottom + 36.0],
            "middle",
            &self.x,
        );
        text(&mut svg, [left, top - 6.0], "start", &self.y);
        for (n, series) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let places = series
                .points
                .iter()
                .filter(|point| point.0 > 0.0 && point.1 > 0.0);
            let places: Vec<(f64, f64)> = places
                .map(|point| (across.place(point.0), up.place(point.1)))
                .collect();
            let path: Vec<String> = places
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let path = path.join(" ");
            let _ = writeln!(
                svg,
                r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#
            );
            for (x, y) in places {
                let _ = writeln!(
                    svg,
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#
                );
            }
            self.legend(&mut svg, n, HEIGHT);
        }
        svg + "</svg>\n"
    }

    fn bars(&self, names: &[String]) -> String {
        /// Where bars begin and end: names are before, values behind them.
        const FROM_TO: [f64; 2] = [240.0, WIDTH - 70.0];
        let values = self.series.iter().flat_map(|series| &series.points);
        let most = values
            .map(|point| point.1)
            .fold(f64::MIN_POSITIVE, f64::max);
        let group = BAR * self.series.len() as f64 + 14.0;
        let bottom = MARGINS[2] + group * names.len() as f64;
        let mut svg = self.begin(bottom + 18.0 * self.series.len() as f64);
        text(&mut svg, [FROM_TO[0], MARGINS[2] - 6.0], "start", &self.y);
        for (place, name) in names.iter().enumerate() {
            let top = MARGINS[2] + group * place as f64;
            let middle = top + group / 2.0;
            text(&mut svg, [FROM_TO[0] - 8.0, middle], "end", name);
            for (n, series) in self.series.iter().enumerate() {
                let Some(&(_, value)) = series.points.iter().find(|point| point.0 == place as f64)
                else {
                    continue;
                };
                let (y, colour) = (top + BAR * n as f64, COLOURS[n % COLOURS.len()]);
                let width = (FROM_TO[1] - FROM_TO[0]) * (value / most).max(0.0);
                let x = FROM_TO[0];
                let _ = writeln!(
                    svg,
                    r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{colour}"/>"#,
                    BAR - 2.0
                );
                text(
                    &mut svg,
                    [x + width + 5.0, y + 11.0],
                    "start",
                    &short(value),
                );
            }
        }
        for n in 0..self.series.len() {
            self.legend(&mut svg, n, bottom);
        }
        svg + "</svg>\n"
    }

    fn begin(&self, height: f64) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        text(&mut svg, [WIDTH / 2.0, 18.0], "middle", &self.title);
        svg
    }

    /// The line of the legend with this number, below the picture.
    fn legend(&self, svg: &mut String, n: usize, below: f64) {
        let (y, colour) = (below + 18.0 * n as f64, COLOURS[n % COLOURS.len()]);
        let (x, top) = (MARGINS[0], y - 3.0);
        let _ = writeln!(
            svg,
            r#"<rect x="{x}" y="{top}" width="24" height="4" fill="{colour}"/>"#
        );
        text(svg, [x + 32.0, y + 4.0], "start", &self.series[n].name);
    }
}

/// A logarithmic axis.
struct Scale {
    /// The ends' logarithms, and where they are.
    logs: [f64; 2],
    places: [f64; 2],
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, places: [f64; 2]) -> Scale {
        let positive = values.filter(|&value| value > 0.0).map(f64::log10);
        let [least, most] = positive.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], value| {
            [a.min(value), b.max(value)]
        });
        let logs = if least > most {
            [0.0, 1.0]
        } else {
            [least, most]
        };
        // An axis has a length, and a curve does not run along its edge.
        let room = (0.05 * (logs[1] - logs[0])).max(0.1);
        let logs = [logs[0] - room, logs[1] + room];
        Scale { logs, places }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.log10() - self.logs[0]) / (self.logs[1] - self.logs[0]);
        self.places[0] + part * (self.places[1] - self.places[0])
    }

    /// Powers of ten, and with few of those 2 and 5 times them.
    fn marks(&self) -> Vec<f64> {
        let decades = (self.logs[0].floor() as i32)..=(self.logs[1].ceil() as i32);
        let steps: &[f64] = match self.logs[1] - self.logs[0] {
            ..2.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let all = decades.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let is_inside = |mark: &f64| (self.logs[0]..=self.logs[1]).contains(&mark.log10());
        all.filter(is_inside).collect()
    }
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
    let _ = writeln!(
        svg,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}"/>"#
    );
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
    );
}

/// For XML and HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A number with a letter for its thousands.
fn short(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        _ if scaled.fract() == 0.0 => 0,
        100.0.. => 0,
        1.0.. => 1,
        0.01.. => 3,
        _ => 4,
    };
    format!("{scaled:.digits$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(kind: Kind, series: Vec<Series>) -> Picture {
        Picture {
            name: "p".to_owned(),
            title: "a < b & c".to_owned(),
            x: "bytes".to_owned(),
            y: "us".to_owned(),
            kind,
            series,
        }
    }

    #[test]
    fn a_curve_that_rises_rises_in_the_picture() {
        let points = vec![(1.0, 1.0), (10.0, 10.0), (100.0, 1000.0)];
        let svg = picture(Kind::Curves, vec![Series::new("one", points)]).svg();
        let path = svg.split("points=\"").nth(1).expect("a line");
        let path = path.split('"').next().expect("it ends");
        let places: Vec<Vec<f64>> = path
            .split(' ')
            .map(|place| {
                place
                    .split(',')
                    .map(|n| n.parse().expect("a number"))
                    .collect()
            })
            .collect();
        assert_eq!(places.len(), 3);
        for pair in places.windows(2) {
            assert!(pair[0][0] < pair[1][0] && pair[0][1] > pair[1][1], "{path}");
        }
        assert!(
            svg.contains("a &lt; b &amp; c") && svg.contains(">100<"),
            "{svg}"
        );
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let names = vec!["one".to_owned(), "two".to_owned()];
        let svg = picture(Kind::Bars(names), vec![Series::bars("here", &[10.0, 20.0])]).svg();
        let widths: Vec<f64> = svg
            .split("width=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next()?.parse().ok())
            .collect();
        // The ground, two bars, the legend.
        assert_eq!(widths.len(), 4, "{svg}");
        assert_eq!(widths[1] * 2.0, widths[2]);
    }

    #[test]
    fn nothing_to_show_is_a_picture_too() {
        for kind in [Kind::Curves, Kind::Bars(Vec::new())] {
            let svg = picture(kind, vec![Series::new("none", vec![(0.0, 0.0)])]).svg();
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        }
    }
}
