//! Random models with free dimensions give the same, whichever way their memory comes: planned for the
//! shape at hand, in one arena for all shapes of a range, or from the allocator with one program for
//! all shapes. What is right is a run at that shape in which no two values share memory.
//! `TENURE_PROGRAMS` gives the number of models for a longer search, and `TENURE_FIRST` the seed to
//! begin with.

use tenure_graph::Graph;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{PlanOptions, Sharing};
use tenure_graph::shapes::{Bindings, bind};
use tenure_graph::{Dialect, Shape, StreamId, text};
use tenure_plan::{Config, Watch};
use tenure_runtime::numbers::encode;
use tenure_runtime::session::{Contents, Origin, Session, Shaped};
use tenure_runtime::{Kernels, Layout, Program};
use tenure_tests::free_shapes::{NAMES, free_model};

/// Shapes that each model is run at.
const SHAPES: usize = 3;

/// The largest size of a dimension.
const MOST: u64 = 7;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |n| n.parse().expect("a number"))
}

/// One input: its dimensions and its bytes.
type Input = (Vec<u64>, Vec<u8>);

/// What a run gives: dimensions and bytes of each result.
type Results = Vec<(Option<Vec<u64>>, Vec<u8>)>;

fn inputs(graph: &Graph, bindings: &Bindings, rng: &mut fastrand::Rng) -> Vec<Input> {
    let mut bound = graph.clone();
    bind(&mut bound, bindings).expect("known dimensions");
    let root = bound.subgraphs[bound.root].inputs.iter();
    let one = |&node| {
        let value = &bound.values[bound.nodes[node].output(0).expect("an input")];
        let dims = value
            .shape
            .as_ref()
            .and_then(Shape::known)
            .expect("a shape");
        let count = dims.iter().product::<u64>();
        let numbers: Vec<f64> = (0..count).map(|_| f64::from(rng.i32(-2..3))).collect();
        let bytes = encode(value.dtype, numbers).expect("numbers");
        (dims.to_vec(), bytes)
    };
    root.map(one).collect()
}

fn program(shaped: &Shaped, table: &OpTable, layout: Layout) -> Result<Program, String> {
    let (graph, plan) = (&shaped.graph, &shaped.plan);
    let program = Program::new(graph, table, plan, &Kernels::builtin(), layout);
    program.map_err(|e| e.to_string())
}

/// Runs a program over poison, twice.
fn run(program: &mut Program, inputs: &[Input]) -> Result<Results, String> {
    let mut found = Vec::new();
    for poison in [0x7f, 0xff] {
        for (i, (dims, _)) in inputs.iter().enumerate() {
            program.set_input_dims(i, dims).map_err(|e| e.to_string())?;
        }
        program.poison(poison);
        let bytes: Vec<&[u8]> = inputs.iter().map(|(_, bytes)| &bytes[..]).collect();
        program.run(&bytes).map_err(|e| e.to_string())?;
        if program.pooled().held != 0 {
            return Err(format!("memory is lost: {:?}", program.pooled()));
        }
        let results = 0..program.results().len();
        let results = results.map(|i| (program.result_dims(i), program.result(i)));
        found.push(results.collect::<Results>());
    }
    match &found[..] {
        [a, b] if a == b => Ok(found.swap_remove(0)),
        _ => Err("two runs of the same differ".to_owned()),
    }
}

/// What was seen in a search.
#[derive(Debug, Default)]
struct Seen {
    fitted: usize,
    apart: usize,
    by_data: usize,
    threads: usize,
}

/// Puts nodes on up to three streams, by their numbers.
fn on_streams(mut graph: Graph) -> Result<Graph, String> {
    for (id, node) in graph.nodes.iter_mut() {
        let mut rng = fastrand::Rng::with_seed(u64::from(id.as_u32()));
        node.stream = Some(StreamId::from_u32(rng.u32(..3)));
    }
    Ok(graph)
}

/// Runs one model in all ways.
fn check(seed: u64, seen: &mut Seen) -> Result<(), String> {
    let nodes = usize::try_from(seed % 9).expect("a small number") + 1;
    let (graph, by_data) = free_model(seed, nodes);
    seen.by_data += usize::from(by_data);
    let table = OpTable::builtin(Dialect::Onnx);
    let config = Config {
        steps: Some(200),
        ..Config::default()
    };
    let session =
        |options: PlanOptions| Session::new(graph.clone(), &table, options, config.clone());
    let bound = |sizes: [u64; 2]| {
        let pairs = NAMES.iter().zip(sizes);
        let texts = pairs.map(|(name, n)| format!("{name}={n}"));
        Bindings::parse(texts).expect("names and numbers")
    };
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    let mut plain = session(PlanOptions {
        sharing: Sharing::None,
        fold: false,
        ..PlanOptions::default()
    });
    let mut alone = session(PlanOptions::default());
    let mut ranged = session(PlanOptions::default()).with_largest(bound([MOST; 2]));
    let (none, watch) = (Contents::new(), Watch::default());
    let pooled = session(PlanOptions::default()).plan(&Bindings::default(), &none, &watch);
    let pooled = pooled.map_err(|e| e.to_string())?;
    let mut pooled = program(&pooled, &table, Layout::Planned)?;
    let streamed = session(PlanOptions::default()).with_preparation(on_streams);
    let streamed = { streamed }.plan(&Bindings::default(), &none, &watch);
    let streamed = streamed.map_err(|e| e.to_string())?;
    let mut threaded = program(&streamed, &table, Layout::Planned)?;
    let threads = threaded.with_threads(&streamed.plan);
    threads.map_err(|e| e.to_string())?;
    seen.threads += threaded.threads();
    for _ in 0..SHAPES {
        let shape = bound([(); 2].map(|()| rng.u64(2..=MOST)));
        let given = inputs(&graph, &shape, &mut rng);
        let made = |session: &mut Session<'_>, layout| {
            let shaped = session.plan(&shape, &none, &watch);
            let shaped = shaped.map_err(|e| e.to_string())?;
            Ok::<_, String>((shaped.origin.clone(), program(&shaped, &table, layout)?))
        };
        let (_, mut expected) = made(&mut plain, Layout::Guarded { zone: 0 })?;
        let (_, mut one) = made(&mut alone, Layout::Planned)?;
        let (origin, mut fitted) = made(&mut ranged, Layout::Planned)?;
        match origin {
            Origin::Fitted => seen.fitted += 1,
            _ => seen.apart += 1,
        }
        let expected = run(&mut expected, &given)?;
        for (what, program) in [
            ("planned for it", &mut one),
            ("within a range", &mut fitted),
            ("pooled", &mut pooled),
            ("pooled, a thread a stream", &mut threaded),
        ] {
            let got = run(program, &given).map_err(|e| format!("{what}, {shape:?}: {e}"))?;
            if got != expected {
                return Err(format!("{what}, {shape:?}: {got:?}, and not {expected:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn all_ways_to_memory_give_the_same() {
    let (first, count) = (number("TENURE_FIRST", 0), number("TENURE_PROGRAMS", 30));
    let mut seen = Seen::default();
    for seed in first..first + count {
        if let Err(error) = check(seed, &mut seen) {
            let nodes = usize::try_from(seed % 9).expect("a small number") + 1;
            let graph = free_model(seed, nodes).0;
            panic!("seed {seed}: {error}\n{}", text::print(&graph));
        }
    }
    let enough = usize::try_from(count / 4).expect("a small number");
    assert!(
        seen.fitted > 4 * seen.apart && seen.by_data > enough && seen.threads > enough,
        "{seen:?}"
    );
}
