//! Threads in many orders: streams that use memory of the allocator while the host goes on, and
//! programs that run a thread a stream. A scheduler chooses who goes on at every lock, at random and by
//! priorities (PCT), so that a failure is found without luck and can be played again.
//! `TENURE_SCHEDULES` gives the number of orders for a longer search.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Runner, thread};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Graph, StreamId, text};
use tenure_plan::Config;
use tenure_runtime::allocator::{Allocator, Device, Lend, Rules, Waits};
use tenure_runtime::{Kernels, Layout, Program};

fn orders() -> usize {
    std::env::var("TENURE_SCHEDULES").map_or(2000, |n| n.parse().expect("a number"))
}

/// Runs something in many orders, at random and by priorities.
fn explore(orders: usize, run: impl Fn() + Clone + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 22;
    let random = RandomScheduler::new(orders);
    Runner::new(random, config.clone()).run(run.clone());
    Runner::new(PctScheduler::new(3, orders), config).run(run);
}

/// What a stream is given to do.
enum Work {
    /// It writes its mark in bytes, or reads it there.
    Use {
        bytes: Range<u64>,
        mark: u64,
        writes: bool,
    },
    Record(u64),
    Wait(u64),
    End,
}

/// The streams' queues, what events have happened, and memory.
#[derive(Default)]
struct Hardware {
    queues: Vec<VecDeque<Work>>,
    /// Streams that are at work on what they took from their queues.
    busy: Vec<bool>,
    happened: Vec<u64>,
    memory: BTreeMap<u64, u64>,
}

struct Machine {
    state: Mutex<Hardware>,
    changed: Condvar,
}

impl Machine {
    fn push(&self, stream: u32, work: Work) {
        self.state.lock().unwrap().queues[stream as usize].push_back(work);
        self.changed.notify_all();
    }

    /// Waits until a stream has nothing more to do.
    fn drain(&self, stream: u32) {
        let stream = stream as usize;
        let mut state = self.state.lock().unwrap();
        while !state.queues[stream].is_empty() || state.busy[stream] {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// What a stream's thread does.
    fn serve(&self, stream: usize) {
        loop {
            let mut state = self.state.lock().unwrap();
            let work = loop {
                match state.queues[stream].pop_front() {
                    Some(work) => break work,
                    None => state = self.changed.wait(state).unwrap(),
                }
            };
            state.busy[stream] = true;
            match work {
                Work::End => return,
                Work::Record(event) => state.happened.push(event),
                Work::Wait(event) => {
                    while !state.happened.contains(&event) {
                        state = self.changed.wait(state).unwrap();
                    }
                }
                Work::Use {
                    bytes,
                    mark,
                    writes,
                } => {
                    // A byte at a time, so that others come between.
                    for byte in bytes.step_by(64) {
                        if writes {
                            state.memory.insert(byte, mark);
                        } else {
                            let found = state.memory.get(&byte);
                            assert_eq!(found, Some(&mark), "byte {byte} on stream {stream}");
                        }
                        drop(state);
                        thread::yield_now();
                        state = self.state.lock().unwrap();
                    }
                }
            }
            state.busy[stream] = false;
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// A small device, whose streams are the machine's.
struct Small {
    machine: Arc<Machine>,
    taken: BTreeMap<u64, u64>,
    /// Whether it waits when it is told to; only a device that is wrong does not.
    waits: bool,
}

impl Device for Small {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let mut address = 0;
        for (&base, &length) in &self.taken {
            if address + bytes <= base {
                break;
            }
            address = base + length;
        }
        (address + bytes <= 512).then(|| {
            self.taken.insert(address, bytes);
            address
        })
    }

    fn give_back(&mut self, address: u64, bytes: u64) {
        assert_eq!(self.taken.remove(&address), Some(bytes));
    }

    fn wait_for(&mut self, stream: u32) {
        if self.waits {
            self.machine.drain(stream);
        }
    }

    fn copy(&mut self, _: u64, _: u64, _: u64, _: u32) {
        unreachable!("nothing is exported here");
    }
}

/// A script of the host: memory that streams write, hand on and read, while it goes on.
fn script(seed: u64, rules: Rules, waits: bool) {
    const STREAMS: u32 = 2;
    let machine = Arc::new(Machine {
        state: Mutex::new(Hardware {
            queues: (0..STREAMS).map(|_| VecDeque::new()).collect(),
            busy: vec![false; STREAMS as usize],
            ..Hardware::default()
        }),
        changed: Condvar::new(),
    });
    let threads: Vec<_> = (0..STREAMS as usize)
        .map(|stream| {
            let machine = machine.clone();
            thread::spawn(move || machine.serve(stream))
        })
        .collect();
    let device = Small {
        machine: machine.clone(),
        taken: BTreeMap::new(),
        waits,
    };
    let mut memory = Allocator::new(rules, device, STREAMS);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut events = 0;
    for mark in 1..=6 {
        let (from, to) = match rng.bool() {
            true => (0, 1),
            false => (1, 0),
        };
        // All that was let go is had again when the device is full, after waiting.
        let bytes = [64, 128, 200][rng.usize(..3)];
        let block = memory
            .alloc(bytes, from)
            .expect("what is let go comes back");
        let bytes = memory.range(block).expect("a block");
        let job = |writes| Work::Use {
            bytes: bytes.clone(),
            mark,
            writes,
        };
        machine.push(from, job(true));
        if rng.bool() {
            events += 1;
            memory.record(1, from).unwrap();
            machine.push(from, Work::Record(events));
            memory.wait(1, to).unwrap();
            machine.push(to, Work::Wait(events));
            memory.access(block, to, None).unwrap();
            machine.push(to, job(false));
            memory.release(block, to).unwrap();
        }
        machine.push(from, job(false));
        memory.release(block, from).unwrap();
    }
    (0..STREAMS).for_each(|stream| machine.push(stream, Work::End));
    for thread in threads {
        thread.join().unwrap();
    }
}

fn allocator(seed: u64) {
    for lend in [Lend::First, Lend::WhenFull] {
        let rules = Rules {
            granularity: 64,
            lend,
            waits: Waits::All,
            ..Rules::default()
        };
        script(seed, rules, true);
    }
}

#[test]
fn no_stream_finds_the_bytes_of_another() {
    for seed in 0..8 {
        explore(orders() / 8, move || allocator(seed));
    }
}

#[test]
fn a_device_that_does_not_wait_is_found_out() {
    let orders = orders();
    let wrong = std::panic::catch_unwind(move || {
        let rules = Rules {
            granularity: 64,
            waits: Waits::All,
            ..Rules::default()
        };
        for seed in 0..8 {
            explore(orders, move || script(seed, rules, false));
        }
    });
    assert!(wrong.is_err(), "no order shows that nobody waits");
}

/// A size that is known only during the run.
const FREE: &str = "\"n\"";

/// Three streams that hand values of `size` elements to one another.
fn model(size: &str) -> Graph {
    let text = "model m onnx opsets [\"\" 17] graph ^root {
           %x: float32[16] = Data() {index = 0}
           %a: float32[16] = Relu(%x)
           %b: float32[16] = Neg(%x)
           %c: float32[16] = Add(%a, %b)
           %d: float32[16] = Mul(%a, %a)
           %e: float32[16] = Sub(%d, %c)
           %f: float32[16] = Add(%e, %b)
           %g: float32[16] = Mul(%f, %c)
           NetOutput(%g, %d) @out
         }";
    let mut graph = text::parse(&text.replace("[16]", &format!("[{size}]"))).expect("a model");
    for (number, node) in (0u32..).zip(graph.nodes.values_mut()) {
        node.stream = node.stream.map(|_| StreamId::from_u32(number % 3));
    }
    graph
}

/// Runs a program twice, a thread a stream, and gives its results.
fn run(size: &str, threads: bool) -> Vec<Vec<u8>> {
    let graph = model(size);
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions::default();
    let plan = tenure_plan::plan(&graph, &table, &options, &Config::default());
    let plan = plan.expect("a plan").plan;
    assert!(!plan.waits.is_empty());
    let plan = tenure_check::check(&graph, &table, &plan).expect("a right plan");
    let kernels = Kernels::builtin();
    let mut program =
        Program::new(&graph, &table, &plan, &kernels, Layout::Planned).expect("a program");
    if threads {
        program.with_threads(&plan).expect("threads");
        assert_eq!(program.threads(), 3);
    }
    let mut results = Vec::new();
    for sign in [1.0f32, -1.0] {
        let input: Vec<u8> = (0..16u8)
            .flat_map(|n| (sign * f32::from(n)).to_le_bytes())
            .collect();
        program.poison(0x7f);
        program.set_input_dims(0, &[16]).expect("a shape");
        program.run(&[&input]).expect("a run");
        results.extend((0..2).map(|i| program.result(i)));
        assert_eq!(program.pooled().held, 0);
    }
    assert_eq!(program.pooled().most_held > 0, size == FREE);
    results
}

#[test]
fn threads_give_the_bytes_of_one_stream_in_every_order() {
    for size in ["16", FREE] {
        explore(orders() / 8, move || {
            assert_eq!(run(size, true), run(size, false));
        });
    }
}
