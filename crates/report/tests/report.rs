//! What a report says of a small hand-made plan, and of files that are no plans.

use tenure_graph::plan_file::PlanFile;
use tenure_report::text::{Style, summary};
use tenure_report::{ReportError, ReportModel, html};

const PLAIN: Style = Style {
    color: false,
    unicode: true,
};

fn small() -> PlanFile {
    serde_json::from_str(include_str!("small.plan.json")).unwrap()
}

fn model(plan: PlanFile) -> ReportModel {
    ReportModel::new(plan, Vec::new()).unwrap()
}

/// The JSON that stands in a page.
fn data(page: &str) -> &str {
    let (_, rest) = page
        .split_once(r#"<script type="application/json" id="report">"#)
        .unwrap();
    rest.split_once("</script>").unwrap().0
}

#[test]
fn load_peak_and_holders() {
    let model = model(small());
    let arena = model.arena().unwrap();
    assert_eq!(arena.load, [1280, 1024, 1408, 1024, 576, 576]);
    assert_eq!(arena.peak.map(|p| (p.step, p.bytes)), Some((2, 1408)));
    assert_eq!(arena.holders, [1, 3, 2]);
}

#[test]
fn a_storage_is_named_by_what_it_holds_at_a_step() {
    let model = model(small());
    let name = |step| {
        model.storages[1]
            .member_at(step)
            .unwrap()
            .file
            .name
            .as_str()
    };
    assert_eq!(name(0), "/conv1/Conv_output_0");
    assert_eq!(name(1), "/relu1/Relu_output_0");
    assert_eq!(
        model.storages[1].last_read().unwrap().file.last_reader,
        "/add/Add (Add)"
    );
}

#[test]
fn the_summary() {
    let warnings = vec!["no row for Foo: taken to read all and share nothing".to_owned()];
    let model = ReportModel::new(small(), warnings).unwrap();
    insta::assert_snapshot!("summary", summary(&model, PLAIN));
    insta::assert_snapshot!(
        "summary_ascii",
        summary(
            &model,
            Style {
                unicode: false,
                ..PLAIN
            }
        )
    );
    let color = summary(
        &model,
        Style {
            color: true,
            ..PLAIN
        },
    );
    insta::assert_snapshot!("summary_color", color.replace('\x1b', "ESC"));
}

#[test]
fn a_gap_to_the_bound_is_said() {
    let mut plan = small();
    plan.arenas[0].size = 1536;
    plan.arenas[0].proven_optimal = false;
    let text = summary(&model(plan), PLAIN);
    assert!(
        text.contains("Not proven the least: the lower bound is 1 408 bytes, 8.3 % less."),
        "{text}"
    );
}

#[test]
fn data_of_a_page_is_the_model() {
    let model = model(small());
    let page = html::page(&model);
    assert_eq!(
        serde_json::from_str::<ReportModel>(data(&page)).unwrap(),
        model
    );
}

#[test]
fn hostile_names_stay_data() {
    const NAME: &str = "</script><script>alert(1)</script><!-- \u{202e}\"'&{{script}}\u{0}";
    let mut plan = small();
    plan.model.name = NAME.to_owned();
    plan.storages[1].values[0].name = NAME.repeat(300);
    let model = model(plan);
    let page = html::page(&model);
    assert!(!page.contains("alert(1)</script>"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(
        serde_json::from_str::<ReportModel>(data(&page)).unwrap(),
        model
    );
    let text = summary(&model, PLAIN);
    assert!(!text.contains(['\u{202e}', '\u{0}']));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn pages_are_deterministic() {
    assert_eq!(html::page(&model(small())), html::page(&model(small())));
}

#[test]
fn damaged_files_are_refused() {
    let refuse = |damage: fn(&mut PlanFile)| {
        let mut plan = small();
        damage(&mut plan);
        ReportModel::new(plan, Vec::new()).unwrap_err()
    };
    assert!(matches!(
        refuse(|p| p.storages[0].last = 6),
        ReportError::BadLife { .. }
    ));
    assert!(matches!(
        refuse(|p| p.storages[0].last = u32::MAX),
        ReportError::BadLife { .. }
    ));
    assert!(matches!(
        refuse(|p| p.storages[2].first = 3),
        ReportError::BadLife { .. }
    ));
    assert!(matches!(
        refuse(|p| p.storages[0].arena = Some(1)),
        ReportError::NoSuchArena { .. }
    ));
    assert!(matches!(
        refuse(|p| p.storages[0].offset = 1344),
        ReportError::OutsideArena { .. }
    ));
    assert!(matches!(
        refuse(|p| p.storages[0].offset = u64::MAX),
        ReportError::OutsideArena { .. }
    ));
    let overflow = refuse(|p| {
        p.arenas[0].size = u64::MAX;
        for storage in &mut p.storages {
            storage.offset = 0;
            storage.size = u64::MAX;
        }
    });
    assert_eq!(overflow, ReportError::LoadOverflow { step: 0 });
}
