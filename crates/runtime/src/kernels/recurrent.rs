//! Recurrent layers: a state that is taken from step to step.
//! Source: the ONNX operator specification, `RNN`, `GRU` and `LSTM`.

use tenure_graph::{Attr, DType};

use super::element::with_type;
use super::matmul::{Finish, Matrix, Product};
use super::{Call, Made, Make, Site, kernel};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("RNN", |s| layer(s, Cell::Rnn)),
    ("GRU", |s| layer(s, Cell::Gru)),
    ("LSTM", |s| layer(s, Cell::Lstm)),
];

/// What is computed in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    /// Number of gates, each with weights of its own.
    fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// Activations of one direction.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// A function of a number with two more that are fixed.
type Function = fn(f64, f64, f64) -> f64;

/// A function of a gate, with its two numbers.
#[derive(Clone, Copy, Debug)]
struct Activation {
    f: Function,
    alpha: f64,
    beta: f64,
}

impl Activation {
    fn of(name: &str, alpha: Option<f64>, beta: Option<f64>) -> Result<Self, String> {
        let (f, a, b): (Function, f64, f64) = match name {
            "Sigmoid" => (|x, _, _| 1.0 / (1.0 + (-x).exp()), 0.0, 0.0),
            "Tanh" => (|x, _, _| x.tanh(), 0.0, 0.0),
            "Relu" => (|x, _, _| x.max(0.0), 0.0, 0.0),
            "Affine" => (|x, a, b| a * x + b, 1.0, 0.0),
            "LeakyRelu" => (|x, a, _| if x < 0.0 { a * x } else { x }, 0.01, 0.0),
            "ThresholdedRelu" => (|x, a, _| if x > a { x } else { 0.0 }, 1.0, 0.0),
            "ScaledTanh" => (|x, a, b| a * (b * x).tanh(), 1.0, 1.0),
            "HardSigmoid" => (|x, a, b| (a * x + b).clamp(0.0, 1.0), 0.2, 0.5),
            "Elu" => (|x, a, _| if x < 0.0 { a * x.exp_m1() } else { x }, 1.0, 0.0),
            "Softsign" => (|x, _, _| x / (1.0 + x.abs()), 0.0, 0.0),
            "Softplus" => (|x, _, _| x.max(0.0) + (-x.abs()).exp().ln_1p(), 0.0, 0.0),
            other => return Err(format!("there is no activation {other:?}")),
        };
        Ok(Activation {
            f,
            alpha: alpha.unwrap_or(a),
            beta: beta.unwrap_or(b),
        })
    }

    #[inline]
    fn apply(&self, x: f64) -> f64 {
        (self.f)(x, self.alpha, self.beta)
    }
}

/// The activations of all directions.
fn activations(site: &Site<'_>, cell: Cell, directions: usize) -> Result<Vec<Activation>, String> {
    let numbers = |name: &str| -> Vec<f64> {
        match site.attrs().get(name) {
            Some(Attr::List(list)) => list.iter().filter_map(Attr::as_float).collect(),
            _ => Vec::new(),
        }
    };
    let (alphas, betas) = (numbers("activation_alpha"), numbers("activation_beta"));
    let names: Vec<String> = match site.attrs().get("activations") {
        Some(Attr::List(list)) => {
            let texts = list.iter().filter_map(Attr::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => {
            let one = cell.activations().iter().map(|&n| n.to_owned());
            one.cycle()
                .take(cell.activations().len() * directions)
                .collect()
        }
    };
    if names.len() != cell.activations().len() * directions {
        return Err(format!(
            "{} activations are not those of {directions} directions",
            names.len()
        ));
    }
    let each = names.iter().enumerate();
    each.map(|(i, name)| Activation::of(name, alphas.get(i).copied(), betas.get(i).copied()))
        .collect()
}

/// The sizes of a layer, and what its attributes say.
#[derive(Clone, Debug)]
struct Layer {
    cell: Cell,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    /// For each direction, whether it runs backwards.
    backwards: Vec<bool>,
    /// The batch is the first axis.
    batch_first: bool,
    clip: f64,
    input_forget: bool,
    linear_before_reset: bool,
    activations: Vec<Activation>,
}

impl Layer {
    fn new(site: &Site<'_>, cell: Cell) -> Result<Self, String> {
        let (x, w, r) = (site.input(0)?, site.input(1)?, site.input(2)?);
        let backwards = match site.text("direction", "forward") {
            "forward" => vec![false],
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            other => return Err(format!("attribute \"direction\" is {other:?}")),
        };
        let batch_first = site.flag("layout", false);
        let &[a, b, input] = &x.dims[..] else {
            return Err("the input has not three axes".to_owned());
        };
        let (steps, batch) = if batch_first { (b, a) } else { (a, b) };
        let hidden = r.dims.last().copied().unwrap_or(0);
        let (gates, directions) = (cell.gates() * hidden, backwards.len());
        if w.dims[..] != [directions, gates, input] || r.dims[..] != [directions, gates, hidden] {
            return Err(format!(
                "weights {:?} and {:?} do not fit the input",
                w.dims, r.dims
            ));
        }
        for (i, size) in [
            (3, directions * 2 * gates),
            (4, batch),
            (5, directions * batch * hidden),
        ]
        .into_iter()
        .chain((cell == Cell::Lstm).then_some((6, directions * batch * hidden)))
        .chain((cell == Cell::Lstm).then_some((7, directions * 3 * hidden)))
        {
            if site.optional(i)?.is_some_and(|t| t.elements() != size) {
                return Err(format!("input {i} has not {size} elements"));
            }
        }
        if site.optional(4)?.is_some_and(|t| t.dtype != DType::I32) {
            return Err("lengths of sequences are of type int32".to_owned());
        }
        Ok(Layer {
            cell,
            steps,
            batch,
            input,
            hidden,
            batch_first,
            clip: site.float("clip", f64::INFINITY),
            input_forget: site.flag("input_forget", false),
            linear_before_reset: site.flag("linear_before_reset", false),
            activations: activations(site, cell, directions)?,
            backwards,
        })
    }

    /// Where the state of a direction and batch begins.
    fn state(&self, d: usize, b: usize) -> usize {
        let directions = self.backwards.len();
        let place = if self.batch_first {
            b * directions + d
        } else {
            d * self.batch + b
        };
        place * self.hidden
    }

    /// Where a step of the input, or, with `width` 1, of the batch begins.
    fn input_at(&self, t: usize, b: usize) -> usize {
        let place = if self.batch_first {
            b * self.steps + t
        } else {
            t * self.batch + b
        };
        place * self.input
    }

    /// Where a step of the output begins.
    fn output_at(&self, t: usize, d: usize, b: usize) -> usize {
        let directions = self.backwards.len();
        let place = if self.batch_first {
            (b * self.steps + t) * directions + d
        } else {
            (t * directions + d) * self.batch + b
        };
        place * self.hidden
    }
}

fn layer(site: &Site<'_>, cell: Cell) -> Made {
    let layer = Layer::new(site, cell)?;
    with_type!(site.input(0)?.dtype, floats, T => run::<T>(layer))
}

/// What is kept between the steps of one direction.
struct State<T> {
    hidden: Vec<T>,
    cell: Vec<f64>,
    /// What the input gives to the gates, for all steps.
    from_input: Vec<T>,
    /// What the state gives to the gates.
    from_state: Vec<T>,
    /// The state after the reset gate.
    reset: Vec<T>,
    candidate: Vec<T>,
}

fn run<T: Product>(layer: Layer) -> Made {
    let (batch, hidden) = (layer.batch, layer.hidden);
    let gates = layer.cell.gates() * hidden;
    let zeros = |n: usize| vec![T::default(); n];
    let mut state = State {
        hidden: zeros(batch * hidden),
        cell: vec![0.0; batch * hidden],
        from_input: zeros(layer.steps * batch * gates),
        from_state: zeros(batch * gates),
        reset: zeros(batch * hidden),
        candidate: zeros(batch * hidden),
    };
    let mut room = T::Room::default();
    kernel(move |call| {
        let last = |b: usize| {
            let length = call.read::<i32>(4).get(b).copied();
            length.map_or(layer.steps, |n| {
                usize::try_from(n).unwrap_or(0).min(layer.steps)
            })
        };
        let lengths: smallvec::SmallVec<[usize; 32]> = (0..batch).map(last).collect();
        for d in 0..layer.backwards.len() {
            direction(&layer, d, &lengths, &mut state, &mut room, call)?;
        }
        Ok(())
    })
}

/// Runs one direction over all steps.
fn direction<T: Product>(
    layer: &Layer,
    d: usize,
    lengths: &[usize],
    state: &mut State<T>,
    room: &mut T::Room,
    call: &mut Call<'_>,
) -> Result<(), String> {
    let (batch, hidden) = (layer.batch, layer.hidden);
    let gates = layer.cell.gates() * hidden;
    let x = call.read::<T>(0);
    let w = &call.read::<T>(1)[d * gates * layer.input..(d + 1) * gates * layer.input];
    let r = &call.read::<T>(2)[d * gates * hidden..(d + 1) * gates * hidden];
    let bias = call.read::<T>(3);
    let bias = bias.get(d * 2 * gates..(d + 1) * 2 * gates);
    for b in 0..batch {
        let from = layer.state(d, b);
        let to = b * hidden..(b + 1) * hidden;
        match call.read::<T>(5).get(from..from + hidden) {
            Some(first) => state.hidden[to.clone()].copy_from_slice(first),
            None => state.hidden[to.clone()].fill(T::default()),
        }
        let cells = call.read::<T>(6).get(from..from + hidden);
        for (k, cell) in state.cell[to].iter_mut().enumerate() {
            *cell = cells.map_or(0.0, |c| c[k].f64());
        }
    }
    let all = Matrix::new(layer.steps * batch, layer.input, false);
    let weights = Matrix::new(layer.input, gates, true);
    if !state.from_input.is_empty() {
        let out = &mut state.from_input;
        T::product(room, out, (x, all), (w, weights), Finish::default())?;
    }
    for n in 0..layer.steps {
        step(layer, d, n, lengths, r, bias, state, room, call)?;
    }
    let [_, last_hidden, last_cell] = call.write_each::<T, 3>([0, 1, 2]);
    for b in 0..batch {
        let to = layer.state(d, b);
        let from = b * hidden..(b + 1) * hidden;
        if let Some(to) = last_hidden.get_mut(to..to + hidden) {
            to.copy_from_slice(&state.hidden[from.clone()]);
        }
        if let Some(to) = last_cell.get_mut(to..to + hidden) {
            for (to, &cell) in to.iter_mut().zip(&state.cell[from]) {
                *to = T::of(cell);
            }
        }
    }
    Ok(())
}

/// One step of one direction.
#[expect(clippy::too_many_arguments, reason = "all that a step works with")]
fn step<T: Product>(
    layer: &Layer,
    d: usize,
    n: usize,
    lengths: &[usize],
    r: &[T],
    bias: Option<&[T]>,
    state: &mut State<T>,
    room: &mut T::Room,
    call: &mut Call<'_>,
) -> Result<(), String> {
    let (batch, hidden) = (layer.batch, layer.hidden);
    let gates = layer.cell.gates() * hidden;
    let before = Matrix::new(batch, hidden, false);
    let recurrent = Matrix::new(hidden, gates, true);
    if batch * hidden > 0 {
        let (out, h) = (&mut state.from_state, &state.hidden);
        T::product(room, out, (h, before), (r, recurrent), Finish::default())?;
    }
    let per = layer.cell.activations().len();
    let act = &layer.activations[d * per..(d + 1) * per];
    let peep = call.read::<T>(7);
    let peep = peep.get(d * 3 * hidden..(d + 1) * 3 * hidden);
    // Not `clamp`, which has no answer where the bounds are no numbers.
    let clip = |x: f64| x.max(-layer.clip).min(layer.clip);
    // The input's part of a gate, its bias included; that of the state has a bias of its own.
    let at = |b: usize| {
        let t = if layer.backwards[d] {
            lengths[b].wrapping_sub(n + 1)
        } else {
            n
        };
        (n < lengths[b]).then_some(t)
    };
    let bias_at = |k: usize| bias.map_or(0.0, |b| b[k].f64());
    let from = |state: &State<T>, b: usize, t: usize, k: usize| {
        let place = layer.input_at(t, b) / layer.input.max(1) * gates + k;
        state.from_input[place].f64() + bias_at(k)
    };
    let own = |state: &State<T>, b: usize, k: usize| {
        state.from_state[b * gates + k].f64() + bias_at(gates + k)
    };
    match layer.cell {
        Cell::Rnn => {
            for b in 0..batch {
                let Some(t) = at(b) else { continue };
                for k in 0..hidden {
                    let x = from(state, b, t, k) + own(state, b, k);
                    state.hidden[b * hidden + k] = T::of(act[0].apply(clip(x)));
                }
            }
        }
        Cell::Lstm => {
            for b in 0..batch {
                let Some(t) = at(b) else { continue };
                for k in 0..hidden {
                    let place = b * hidden + k;
                    let gate = |g: usize| {
                        from(state, b, t, g * hidden + k) + own(state, b, g * hidden + k)
                    };
                    let peeped =
                        |g: usize, c: f64| peep.map_or(0.0, |p| p[g * hidden + k].f64() * c);
                    let cell = state.cell[place];
                    let input = act[0].apply(clip(gate(0) + peeped(0, cell)));
                    let forget = if layer.input_forget {
                        1.0 - input
                    } else {
                        act[0].apply(clip(gate(2) + peeped(2, cell)))
                    };
                    let new = forget * cell + input * act[1].apply(clip(gate(3)));
                    let output = act[0].apply(clip(gate(1) + peeped(1, new)));
                    state.cell[place] = new;
                    state.hidden[place] = T::of(output * act[2].apply(new));
                }
            }
        }
        Cell::Gru => {
            for b in 0..batch {
                for k in 0..hidden {
                    let place = b * hidden + k;
                    let Some(t) = at(b) else { continue };
                    let gate = |g: usize| {
                        from(state, b, t, g * hidden + k) + own(state, b, g * hidden + k)
                    };
                    let reset = act[0].apply(clip(gate(1)));
                    state.reset[place] = if layer.linear_before_reset {
                        T::of(reset * own(state, b, 2 * hidden + k))
                    } else {
                        T::of(reset * state.hidden[place].f64())
                    };
                }
            }
            if !layer.linear_before_reset && batch * hidden > 0 {
                let r = (&r[2 * hidden * hidden..], Matrix::new(hidden, hidden, true));
                let (out, reset) = (&mut state.candidate, &state.reset);
                T::product(room, out, (reset, before), r, Finish::default())?;
            }
            for b in 0..batch {
                let Some(t) = at(b) else { continue };
                for k in 0..hidden {
                    let place = b * hidden + k;
                    let k2 = 2 * hidden + k;
                    let update = act[0].apply(clip(from(state, b, t, k) + own(state, b, k)));
                    let recurrent = if layer.linear_before_reset {
                        state.reset[place].f64()
                    } else {
                        state.candidate[place].f64() + bias_at(gates + k2)
                    };
                    let candidate = act[1].apply(clip(from(state, b, t, k2) + recurrent));
                    let old = state.hidden[place].f64();
                    state.hidden[place] = T::of((1.0 - update) * candidate + update * old);
                }
            }
        }
    }
    // What lies behind the end of a sequence is 0.
    let y = call.write::<T>(0);
    for b in 0..batch {
        let t = at(b).unwrap_or(n);
        let to = layer.output_at(t, d, b);
        if let Some(to) = y.get_mut(to..to + hidden) {
            match at(b) {
                Some(_) => to.copy_from_slice(&state.hidden[b * hidden..(b + 1) * hidden]),
                None => to.fill(T::default()),
            }
        }
    }
    Ok(())
}
