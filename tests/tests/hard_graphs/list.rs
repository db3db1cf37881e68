//! Graphs that are easily planned wrong: states that swap, views across borders, outputs that are
//! inputs, values written in place while others need them, and whatever else has two names.

use tenure_graph::{Graph, text};

/// Graphs and what is hard about them.
struct Graphs(Vec<(String, Graph)>);

/// All of them.
pub(crate) fn all() -> Vec<(String, Graph)> {
    let mut graphs = Graphs(Vec::new());
    graphs.states_of_loops();
    graphs.slices_in_and_out();
    graphs.branches();
    graphs.outputs_of_the_graph();
    graphs.nothing_to_hold();
    graphs.references();
    graphs.0
}

impl Graphs {
    fn add(&mut self, name: &str, text: &str) {
        let graph = text::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        self.0.push((name.to_owned(), graph));
    }

    fn onnx(&mut self, name: &str, body: &str) {
        let head = "model m onnx opsets [\"\" 17]";
        self.add(name, &format!("{head} graph ^root {{ {body} }}"));
    }

    fn ge(&mut self, name: &str, body: &str) {
        self.add(name, &format!("model m ge graph ^root {{ {body} }}"));
    }

    /// A `Loop` over the states `x` and `y`; what its body does and gives back is to be filled in.
    fn with_loop(&mut self, name: &str, body: &str, results: &str, after: &str) {
        self.onnx(
            name,
            &format!(
                "%n: int64[] = Data()
             %go: bool[] = Data()
             %x: float32[8] = Data()
             %y: float32[8] = Data()
             %a: float32[8], %b: float32[8] = Loop(%n, %go, %x, %y)
               body ^body {{
                 %i: int64[] = Data()
                 %c: bool[] = Data()
                 %s: float32[8] = Data()
                 %t: float32[8] = Data()
                 {body}
                 NetOutput({results}) @out1
               }}
             {after}"
            ),
        );
    }

    fn states_of_loops(&mut self) {
        let last = "NetOutput(%a, %b) @out";
        self.with_loop("swapped", "", "%c, %t, %s", last);
        self.with_loop("handed on", "", "%c, %s, %t", last);
        self.with_loop("both the same", "", "%c, %s, %s", last);
        self.with_loop(
            "one view of the other",
            "%v: float32[8] = Identity(%t)",
            "%c, %v, %t",
            last,
        );
        self.with_loop(
            "swapped through views of views",
            "%shape: int64[2] = Constant() {value = int64[2] [2, 4]}
         %u: float32[2, 4] = Reshape(%s, %shape)
         %v: float32[8] = Flatten(%u) {axis = 0}
         %w: float32[8] = Identity(%v)",
            "%c, %t, %w",
            last,
        );
        self.with_loop(
            "updated and swapped",
            "%r: float32[8] = Relu(%s) %q: float32[8] = Add(%r, %t)",
            "%c, %q, %r",
            last,
        );
        self.with_loop(
            "updated in place while the other is the old value",
            "%r: float32[8] = Relu(%s)",
            "%c, %r, %s",
            last,
        );
        self.with_loop(
            "the start value each time",
            "%r: float32[8] = Add(%s, %x^root)",
            "%c, %x^root, %r",
            "%z: float32[8] = Add(%x, %a) NetOutput(%a, %b, %z) @out",
        );
        self.with_loop(
            "the start value of the other",
            "%r: float32[8] = Add(%s, %y^root)",
            "%c, %y^root, %r",
            last,
        );
        self.with_loop(
        "a constant",
        "%k: float32[8] = Constant() {value = float32[8] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}
         %r: float32[8] = Relu(%t)",
        "%c, %k, %r",
        last,
    );
        self.with_loop(
            "nobody looks at the result",
            "%r: float32[8] = Relu(%s)",
            "%c, %r, %t",
            "%z: float32[8] = Relu(%x) NetOutput(%z) @out",
        );
        self.with_loop(
            "start values live on, and are updated in place afterwards",
            "%r: float32[8] = Relu(%s)",
            "%c, %r, %t",
            "%p: float32[8] = Relu(%x) %q: float32[8] = Relu(%a) NetOutput(%p, %q, %b, %y) @out",
        );
        self.with_loop(
            "a captured value, updated in place in a branch",
            "%d: float32[8] = If(%c)
           then ^then { %r: float32[8] = Relu(%s^body) NetOutput(%r) @out2 }
           else ^else { %q: float32[8] = Relu(%y^root) NetOutput(%q) @out3 }",
            "%c, %d, %t",
            "NetOutput(%a, %b, %y) @out",
        );
        self.with_loop(
            "a branch gives back the one state or the other",
            "%d: float32[8], %e: float32[8] = If(%c)
           then ^then { NetOutput(%s^body, %t^body) @out2 }
           else ^else { NetOutput(%t^body, %s^body) @out3 }",
            "%c, %d, %e",
            last,
        );
        self.with_loop(
            "a loop inside, with the states turned",
            "%d: float32[8], %e: float32[8] = Loop(_, %c, %t, %s)
           body ^inner {
             %i2: int64[] = Data()
             %c2: bool[] = Data()
             %s2: float32[8] = Data()
             %t2: float32[8] = Data()
             %r2: float32[8] = Add(%s2, %s^body)
             NetOutput(%c2, %t2, %r2) @out2
           }",
            "%c, %e, %d",
            last,
        );
        self.with_loop(
            "the condition is computed in place",
            "%c2: bool[] = Not(%c) %c3: bool[] = Identity(%c2)",
            "%c3, %t, %s",
            last,
        );
        self.with_loop(
            "its outputs twice",
            "",
            "%c, %t, %s",
            "NetOutput(%a, %a, %b, %a) @out",
        );
    }

    fn slices_in_and_out(&mut self) {
        self.onnx(
        "states and slices of each, in and out",
        "%x: float32[8] = Data()
         %m: float32[4, 8] = Data()
         %last: float32[8], %all: float32[4, 8], %old: float32[4, 8] = Scan(%x, %m) {num_scan_inputs = 1}
           body ^body {
             %s: float32[8] = Data()
             %p: float32[8] = Data()
             %r: float32[8] = Add(%s, %p)
             %q: float32[8] = Relu(%r)
             NetOutput(%q, %r, %s) @out1
           }
         %z: float32[4, 8] = Relu(%m)
         NetOutput(%last, %all, %old, %z) @out",
    );
        self.onnx(
            "a state that is a slice, and a slice that is a captured value",
            "%x: float32[8] = Data()
         %m: float32[4, 8] = Data()
         %last: float32[8], %all: float32[4, 8] = Scan(%x, %m) {num_scan_inputs = 1}
           body ^body {
             %s: float32[8] = Data()
             %p: float32[8] = Data()
             NetOutput(%p, %x^root) @out1
           }
         NetOutput(%last, %all, %x) @out",
        );
        self.onnx(
            "slices of a loop, of its own state",
            "%n: int64[] = Data()
         %x: float32[8] = Data()
         %last: float32[8], %all: float32[4, 8], %same: float32[4, 8] = Loop(%n, _, %x)
           body ^body {
             %i: int64[] = Data()
             %c: bool[] = Data()
             %s: float32[8] = Data()
             %r: float32[8] = Relu(%s)
             NetOutput(%c, %r, %s, %r) @out1
           }
         %z: float32[4, 8] = Add(%all, %same)
         NetOutput(%last, %z) @out",
        );
    }

    /// An `If` over `x` and `y`; what its branches do is to be filled in.
    fn with_if(&mut self, name: &str, then: &str, other: &str, after: &str) {
        self.onnx(
        name,
        &format!(
            "%go: bool[] = Data()
             %x: float32[8] = Data()
             %y: float32[8] = Relu(%x)
             %k: float32[8] = Const() {{value = float32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]}}
             %a: float32[8], %b: float32[8] = If(%go)
               then ^then {{ {then} @out1 }}
               else ^else {{ {other} @out2 }}
             {after}"
        ),
    );
    }

    fn branches(&mut self) {
        let last = "NetOutput(%a, %b) @out";
        self.with_if(
            "captured values",
            "NetOutput(%x^root, %y^root)",
            "NetOutput(%y^root, %x^root)",
            last,
        );
        self.with_if(
            "the same in both",
            "NetOutput(%y^root, %y^root)",
            "NetOutput(%y^root, %y^root)",
            "%z: float32[8] = Relu(%a) NetOutput(%z, %b, %y) @out",
        );
        self.with_if(
            "constants",
            "NetOutput(%k^root, %y^root)",
            "NetOutput(%y^root, %k^root)",
            last,
        );
        self.with_if(
            "constants alone",
            "NetOutput(%k^root, %k^root)",
            "NetOutput(%k^root, %k^root)",
            "%z: float32[8] = Relu(%a) NetOutput(%z, %a, %b, %k) @out",
        );
        self.with_if(
            "in place of what the other branch gives back",
            "%r: float32[8] = Relu(%y^root) NetOutput(%r, %x^root)",
            "NetOutput(%y^root, %y^root)",
            last,
        );
        self.with_if(
            "a view of what is captured, and its source updated in place",
            "%v: float32[8] = Identity(%y^root) %r: float32[8] = Relu(%y^root) NetOutput(%v, %r)",
            "%v2: float32[8] = Identity(%x^root) NetOutput(%v2, %v2)",
            last,
        );
        self.with_if(
        "a view of a view across two borders",
        "%shape: int64[2] = Constant() {value = int64[2] [2, 4]}
         %v: float32[2, 4] = Reshape(%y^root, %shape)
         %d: float32[8], %e: float32[8] = If(%go^root)
           then ^t2 { %w: float32[8] = Flatten(%v^then) {axis = 0} NetOutput(%w, %y^root) @out3 }
           else ^e2 { %w2: float32[8] = Flatten(%v^then) {axis = 0} %r: float32[8] = Relu(%w2) NetOutput(%r, %w2) @out4 }
         NetOutput(%d, %e)",
        "NetOutput(%y^root, %x^root)",
        last,
    );
        self.with_if(
            "nobody looks at the results",
            "%r: float32[8] = Relu(%y^root) NetOutput(%r, %r)",
            "NetOutput(%x^root, %y^root)",
            "NetOutput(%y) @out",
        );
        self.with_if(
            "results twice, and updated in place",
            "NetOutput(%x^root, %y^root)",
            "NetOutput(%y^root, %x^root)",
            "%r: float32[8] = Relu(%a) NetOutput(%a, %a, %r, %b) @out",
        );
        self.with_if(
            "a branch in a branch, of what is captured in both",
            "%d: float32[8] = If(%go^root)
           then ^t2 { %r: float32[8] = Relu(%y^root) NetOutput(%r) @out3 }
           else ^e2 { NetOutput(%y^root) @out4 }
         %s: float32[8] = Add(%d, %y^root)
         NetOutput(%d, %s)",
            "NetOutput(%y^root, %x^root)",
            "%z: float32[8] = Add(%y, %a) NetOutput(%z, %b) @out",
        );
    }

    fn outputs_of_the_graph(&mut self) {
        self.onnx("an input", "%x: float32[8] = Data() NetOutput(%x) @out");
        self.onnx(
            "an input twice",
            "%x: float32[8] = Data() NetOutput(%x, %x) @out",
        );
        self.onnx(
            "an input through views, and updated",
            "%x: float32[8] = Data()
         %v: float32[8] = Identity(%x)
         %w: float32[8] = Identity(%v)
         %r: float32[8] = Relu(%w)
         NetOutput(%w, %r, %v, %x) @out",
        );
        self.onnx(
            "a value, its views, and what is updated in its place",
            "%x: float32[8] = Data()
         %y: float32[8] = Relu(%x)
         %v: float32[8] = Identity(%y)
         %z: float32[8] = Relu(%v)
         %w: float32[8] = Identity(%z)
         NetOutput(%y, %v, %y, %w, %z) @out",
        );
        self.onnx(
            "constants and views of them",
            "%k: float32[2] = Const() {value = float32[2] [1.0, 2.0]}
         %v: float32[2] = Identity(%k)
         %r: float32[2] = Relu(%v)
         NetOutput(%k, %v, %r, %k) @out",
        );
        self.onnx(
            "one value read twice by one node",
            "%x: float32[8] = Data()
         %y: float32[8] = Relu(%x)
         %v: float32[8] = Identity(%y)
         %s: float32[8] = Add(%y, %v)
         %t: float32[8] = Add(%s, %s)
         %u: float32[8] = Sub(%t, %x)
         NetOutput(%u) @out",
        );
        self.onnx(
            "broadcast over what would be updated in place",
            "%x: float32[8, 8] = Data()
         %b: float32[8] = Data()
         %r: float32[8] = Relu(%b)
         %y: float32[8, 8] = Add(%x, %r)
         %z: float32[8, 8] = Mul(%y, %r)
         NetOutput(%z, %r) @out",
        );
    }

    fn nothing_to_hold(&mut self) {
        self.onnx(
            "empty tensors everywhere",
            "%go: bool[] = Data()
         %x: float32[0] = Data()
         %y: float32[0] = Relu(%x)
         %z: float32[8] = Data()
         %j: float32[8] = Concat(%y, %z, %x) {axis = 0}
         %e: float32[0] = If(%go)
           then ^then { %r: float32[0] = Relu(%y^root) NetOutput(%r) @out1 }
           else ^else { NetOutput(%x^root) @out2 }
         %s: float32[0] = Loop(_, %go, %e)
           body ^body {
             %i: int64[] = Data()
             %c: bool[] = Data()
             %t: float32[0] = Data()
             %u: float32[0] = Relu(%t)
             NetOutput(%c, %u) @out3
           }
         NetOutput(%j, %s, %x, %y) @out",
        );
        self.onnx("no nodes", "NetOutput() @out");
        self.onnx("nothing at all", "");
        self.onnx(
            "nothing is given back",
            "%x: float32[8] = Data() %y: float32[8] = Relu(%x) %z: float32[8] = Relu(%y)",
        );
        self.ge(
            "an input of two outputs",
            "%x: float32[8], %y: float32[8] = Data() {index = 0}
             %a: float32[8] = Relu(%y)
             %b: float32[8] <ref_input = 0> = InplaceAdd(%y, %x)
             NetOutput(%b, %a) @out",
        );
        self.onnx(
            "no outputs",
            "%x: float32[8] = Data() %y: float32[8] = Relu(%x) NetOutput() @out",
        );
    }

    fn references(&mut self) {
        self.ge(
            "an input is written, and read before and after",
            "%x: float32[8] = Data() {index = 0}
         %y: float32[8] = Data() {index = 1}
         %before: float32[8] = Relu(%x)
         %set: float32[8] <ref_input = 0> = Assign(%x, %y)
         %after: float32[8] = Add(%x, %set)
         NetOutput(%before, %after, %set, %x) @out",
        );
        self.ge(
            "one value after the other, in one place",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %b: float32[8] <ref_input = 0> = InplaceAdd(%a, %x)
         %c: float32[8] <ref_input = 0> = InplaceAdd(%b, %x)
         %d: float32[8] <ref_input = 0> = InplaceAdd(%c, %b)
         NetOutput(%d) @out",
        );
        self.ge(
            "all of them looked at in the end",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %b: float32[8] <ref_input = 0> = InplaceAdd(%a, %x)
         %c: float32[8] <ref_input = 0> = InplaceAdd(%b, %x)
         NetOutput(%a, %b, %c, %c) @out",
        );
        self.ge(
            "a value written over itself",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %v: float32[8] <ref_input = 0> = Reshape(%a)
         %b: float32[8] <ref_input = 0> = Assign(%a, %a)
         %c: float32[8] <ref_input = 0> = InplaceAdd(%b, %v)
         NetOutput(%c) @out",
        );
        self.ge(
            "two nodes write in the memory of one value",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %b: float32[8] <ref_input = 0> = InplaceAdd(%a, %x)
         %c: float32[8] <ref_input = 0> = InplaceAdd(%a, %x)
         %d: float32[8] = Add(%b, %c)
         NetOutput(%d) @out",
        );
        self.ge(
            "constants are written",
            "%k: float32[8] = Const() {value = float32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]}
         %x: float32[8] = Data() {index = 0}
         %v: float32[8] <ref_input = 0> = Reshape(%k)
         %a: float32[8] <ref_input = 0> = Assign(%k, %x)
         %b: float32[8] <ref_input = 0> = Assign(%v, %x)
         %c: float32[8] = Add(%a, %k)
         NetOutput(%b, %c, %k) @out",
        );
        self.ge(
            "variables, views of them, and what is written there",
            "%var: float32[8] = Variable()
         %x: float32[8] = Data() {index = 0}
         %v: float32[8] <ref_input = 0> = Reshape(%var)
         %before: float32[8] = Relu(%v)
         %set: float32[8] <ref_input = 0> = Assign(%v, %x)
         %more: float32[8] <ref_input = 0> = InplaceAdd(%set, %before)
         %after: float32[8] = Relu(%var)
         NetOutput(%after, %more, %var, %v) @out",
        );
        for read in ["", " but the condition"] {
            let (state, go) = match read {
                "" => ("", "%p: bool[] = Relu(%k^root)"),
                _ => (
                    "%s: float32[8] = Data() {parent_index = 0}",
                    "%p: bool[] = Less(%s)",
                ),
            };
            self.ge(
                &format!("a state that no pass reads{read}, and that is read behind its loop"),
                &format!(
                    "%k: bool[] = Data() {{index = 2}}
         %x: float32[8] = Data() {{index = 0}}
         %y: float32[8] = Data() {{index = 1}}
         %a: float32[8] = Relu(%x)
         %b: float32[8] = Relu(%y)
         %w: float32[8], %v: float32[8] = While(%a, %b)
           cond ^cond {{ {state} {go} %m: float32[64] = Relu(%y^root) NetOutput(%p) @out1 }}
           body ^body {{
             %t: float32[8] = Data() {{parent_index = 1}}
             %u: float32[8] = Relu(%t)
             %n: float32[8] = Relu(%u)
             NetOutput(%n, %u) @out2 inputs [{{parent_index = 0}}, {{parent_index = 1}}]
           }}
         %z: float32[8] = Relu(%w)
         NetOutput(%z) @out"
                ),
            );
        }
        self.ge(
            "what a called graph writes is its caller's",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %b: float32[8], %c: float32[8] = PartitionedCall(%a, %x)
           body ^body {
             %p: float32[8] = Data() {parent_index = 0}
             %q: float32[8] = Data() {parent_index = 1}
             %r: float32[8] <ref_input = 0> = Assign(%p, %q)
             %s: float32[8] <ref_input = 0> = Reshape(%p)
             NetOutput(%r, %s) @out1 inputs [{parent_index = 1}, {parent_index = 0}]
           }
         %d: float32[8] = Add(%a, %c)
         NetOutput(%b, %d) @out",
        );
        self.ge(
            "both branches write what is handed in",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] = Relu(%x)
         %b: float32[8] = If(%x, %a)
           then ^then {
             %p: float32[8] = Data() {parent_index = 1}
             %r: float32[8] <ref_input = 0> = InplaceAdd(%p, %p)
             NetOutput(%r) @out1
           }
           else ^else {
             %p2: float32[8] = Data() {parent_index = 1}
             %r2: float32[8] <ref_input = 0> = InplaceAdd(%p2, %p2)
             %s2: float32[8] = Add(%r2, %p2)
             NetOutput(%s2) @out2
           }
         %c: float32[8] = Add(%a, %b)
         NetOutput(%c) @out",
        );
        self.ge(
            "three ways: as it is, written, a constant",
            "%x: float32[8] = Data() {index = 0}
         %k: float32[8] = Const() {value = float32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]}
         %a: float32[8] = Relu(%x)
         %b: float32[8] = Case(%x, %a, %k)
           branch0 ^b0 { %p0: float32[8] = Data() {parent_index = 1} NetOutput(%p0) @out1 }
           branch1 ^b1 {
             %p1: float32[8] = Data() {parent_index = 1}
             %r1: float32[8] <ref_input = 0> = InplaceAdd(%p1, %p1)
             NetOutput(%r1) @out2
           }
           branch2 ^b2 { %p2: float32[8] = Data() {parent_index = 2} NetOutput(%p2) @out3 }
         %c: float32[8] = Add(%b, %k)
         NetOutput(%c, %a) @out",
        );
        self.ge(
            "states of a loop that turn by their numbers",
            "%x: float32[8] = Data() {index = 0}
         %y: float32[8] = Data() {index = 1}
         %a: float32[8], %b: float32[8] = While(%x, %y)
           cond ^cond {
             %c0: float32[8] = Data() {parent_index = 0}
             %c1: float32[8] = Data() {parent_index = 1}
             %go: float32[8] = Less(%c0, %c1)
             NetOutput(%go) @out1
           }
           body ^body {
             %s: float32[8] = Data() {parent_index = 1}
             %t: float32[8] = Data() {parent_index = 0}
             %r: float32[8] <ref_input = 0> = InplaceAdd(%s, %t)
             NetOutput(%t, %r) @out2 inputs [{parent_index = 1}, {parent_index = 0}]
           }
         %z: float32[8] = Add(%x, %a)
         NetOutput(%z, %b, %y) @out",
        );
        self.ge(
            "a state that stays, captured and written elsewhere",
            "%x: float32[8] = Data() {index = 0}
         %y: float32[8] = Data() {index = 1}
         %a: float32[8], %b: float32[8] = While(%x, %y)
           cond ^cond {
             %c0: float32[8] = Data() {parent_index = 0}
             NetOutput(%c0) @out1
           }
           body ^body {
             %s: float32[8] = Data() {parent_index = 0}
             %t: float32[8] = Data() {parent_index = 1}
             %r: float32[8] <ref_input = 0> = InplaceAdd(%t, %s)
             NetOutput(%s, %r) @out2
           }
         %c: float32[8] <ref_input = 0> = Assign(%x, %b)
         NetOutput(%a, %c, %x) @out",
        );
        self.ge(
            "scratch, leave to work in place, and collectives",
            "%x: float32[8] = Data() {index = 0}
         %a: float32[8] <may_inplace = [0]> = Relu(%x) workspace [100, 7]
         %b: float32[8] = HcomAllReduce(%a) workspace [32]
         %c: float32[8] <may_inplace = [0, 1]> = Add(%a, %b) after @b
         %d: float32[8] <may_inplace = [1, 0]> = Add(%c, %c)
         %e: float32[8] <may_inplace = [0, 1]> = Cross(%d, %d)
         NetOutput(%e, %b) @out",
        );
    }
}
