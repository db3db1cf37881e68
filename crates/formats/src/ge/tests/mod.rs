//! One model in every encoding is one graph, and each thing that a file says becomes what it should.

mod hostile;

use tenure_graph::effects::OpTable;
use tenure_graph::{DType, Graph, json, text};

use crate::testing::ge::{Container, Model, Node, Tensor, Value};
use crate::{Kind, ModelFile, detect, read_bytes};

/// A compiled model of two streams, with everything that all encodings have: a constant, a node that
/// clears memory, an event, a workspace, a reference, a second output that nobody reads.
fn sample() -> Model {
    let float = |n: i64| Tensor::new("DT_FLOAT", &[n]).size(n * 4 + 32);
    let mut model = Model::new("sample");
    model.attr("memory_size", Value::Int(4096));
    model.attr("zero_copy_memory_size", Value::Int(1024));
    model.add(
        Node::new("x", "Data")
            .inputs(&[""])
            .output(float(16))
            .at(&[3072]),
    );
    model.add(Node::new("w", "Const").output(Tensor::new("DT_FLOAT16", &[16])));
    model.add(Node::new("clean", "MemSet").workspace(512, 512));
    model.add(
        Node::new("a", "Abs")
            .inputs(&["x:0"])
            .stream(1)
            .output(float(16))
            .at(&[0]),
    );
    model.add(
        Node::new("send", "Send")
            .inputs(&["a:-1"])
            .stream(1)
            .attr("event_id", Value::Int(7)),
    );
    model.add(Node::new("recv", "Recv").attr("event_id", Value::Int(7)));
    model.add(
        Node::new("b", "BatchNorm")
            .inputs(&["a:0", "", "w:0", "recv:-1", "clean:-1"])
            .attr("atomic_output_index", Value::Ints(vec![0]))
            .attr("epsilon", Value::Float(0.5))
            .output(float(16))
            .output(Tensor::new("DT_INT32", &[3]).size(64))
            .workspace(100, 1536)
            .at(&[512, 1024]),
    );
    model.add(
        Node::new("c", "InplaceAdd")
            .inputs(&["b:0"])
            .attr("mode", Value::Text("sum".to_owned()))
            .output(float(16).reuses(0).attr("origin", Value::Int(1)))
            .reads_at(&[512])
            .at(&[512]),
    );
    model.add(
        Node::new("out", "NetOutput")
            .inputs(&["c:0"])
            .reads_at(&[512]),
    );
    model
}

fn read(bytes: Vec<u8>) -> Graph {
    read_bytes(bytes).unwrap_or_else(|e| panic!("{e}"))
}

fn error(bytes: Vec<u8>) -> String {
    match read_bytes(bytes) {
        Ok(graph) => panic!("was read: {}", text::print(&graph)),
        Err(e) => e.to_string(),
    }
}

#[test]
fn every_encoding_is_told_by_its_content_and_is_one_graph() {
    let model = sample();
    let graph = read(model.proto());
    for (kind, bytes) in [
        (Kind::GeProto, model.proto()),
        (Kind::GeOm, model.om(Container::Narrow)),
        (Kind::GeOm, model.om(Container::Wide)),
        (Kind::GeOm, model.clone().coded().om(Container::Wide)),
        (Kind::GeText, model.proto_text()),
        (Kind::GeOnnxText, model.onnx_text()),
    ] {
        assert_eq!(detect(&bytes).map_err(|e| e.to_string()), Ok(kind));
        assert_eq!(read(bytes), graph, "{kind:?}");
    }
    // It is the graph that graph JSON says, too.
    let json = json::read(json::write(&graph).as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(json, graph);
    insta::assert_snapshot!(text::print(&graph));
}

#[test]
fn a_model_of_2019_has_sizes_of_its_own_and_a_buffer_for_its_results() {
    let mut model = Model::new("old");
    model.attr("memory_size", Value::Int(2560));
    // The size is that of a padded layout; the numbers of types are other ones.
    let half = |n: i64| Tensor::new("DT_FLOAT16", &[n]).size(1056);
    model.add(Node::new("x", "Data").output(half(16)).at(&[0]));
    model.add(
        Node::new("y", "Activation")
            .inputs(&["x:0"])
            .output(half(16))
            .at(&[1536]),
    );
    let own = Tensor::new("DT_FLOAT", &[16]).size(96);
    model.add(
        Node::new("out", "NetOutput")
            .inputs(&["y:0"])
            .output(own)
            .reads_at(&[1536])
            .at(&[2048]),
    );
    let bytes = model.om_of_2019();
    let file = ModelFile {
        kind: detect(&bytes).unwrap(),
        bytes: bytes.into(),
        folder: None,
        number: 0,
    };
    assert_eq!(file.kind, Kind::GeOm);
    let (graph, recorded) = file.compiled().unwrap();
    let recorded = recorded.unwrap();
    let value = |name: &str| graph.values.iter().find(|(_, v)| v.name == name).unwrap();
    assert_eq!(value("y:0").1.dtype, DType::F16);
    assert_eq!(graph.asked_bytes(value("y:0").0), Some(1056));
    let out = graph.subgraphs[graph.root].output.unwrap();
    assert_eq!(graph.nodes[out].workspace[..], [96]);
    assert_eq!(recorded.workspaces, [(out, 0, 2048)]);
    assert_eq!(
        recorded.values,
        [(value("x:0").0, 0), (value("y:0").0, 1536)]
    );
    assert_eq!(recorded.sizes, [(0, 2560)]);
}

#[test]
fn a_compiled_model_carries_the_places_of_its_buffers() {
    let file = |bytes: Vec<u8>| ModelFile {
        kind: detect(&bytes).unwrap(),
        bytes: bytes.into(),
        folder: None,
        number: 0,
    };
    let (graph, recorded) = file(sample().om(Container::Wide)).compiled().unwrap();
    let recorded = recorded.unwrap();
    let named = (recorded.values.iter())
        .map(|&(v, offset)| (graph.value_label(v), offset))
        .collect::<Vec<_>>();
    let expected = [
        ("x:0", 3072),
        ("a:0", 0),
        ("b:0", 512),
        ("b:1", 1024),
        ("c:0", 512),
    ];
    assert_eq!(named, expected.map(|(name, at)| (name.to_owned(), at)));
    let workspaces = recorded.workspaces.iter();
    let workspaces = workspaces.map(|&(n, k, at)| (&*graph.nodes[n].name, k, at));
    assert_eq!(workspaces.collect::<Vec<_>>(), [("b", 0, 1536)]);
    let cleared = recorded.cleared.iter();
    let cleared = cleared.map(|&(n, at, bytes)| (&*graph.nodes[n].name, at, bytes));
    assert_eq!(cleared.collect::<Vec<_>>(), [("clean", 512, 512)]);
    assert_eq!(
        (recorded.sizes, recorded.zero_copy),
        (vec![(0, 4096)], Some(1024))
    );

    // One that is not compiled carries none.
    let mut model = Model::new("m");
    model.add(Node::new("x", "Data").output(Tensor::new("DT_FLOAT", &[4])));
    assert_eq!(file(model.proto()).compiled().unwrap().1, None);
}

#[test]
fn subgraphs_have_the_roles_of_their_operators_and_numbers_of_their_own() {
    let float = || Tensor::new("DT_FLOAT", &[4]);
    let mut model = Model::new("m");
    model.add(
        Node::new("go", "Data")
            .attr("index", Value::Int(1))
            .output(float()),
    );
    model.add(
        Node::new("x", "Data")
            .attr("index", Value::Int(0))
            .output(float()),
    );
    model.add(
        Node::new("if", "If")
            .inputs(&["go:0", "x:0"])
            .runs("left")
            .runs("right")
            .output(float()),
    );
    model.add(Node::new("out", "NetOutput").inputs(&["if:0"]));
    for name in ["left", "right"] {
        model.graph(name);
        let parent = |k| ("_parent_node_index", Value::Int(k));
        let (key, one) = parent(1);
        model.add(Node::new("x", "Data").attr(key, one).output(float()));
        model.add(Node::new("neg", "Neg").inputs(&["x:0"]).output(float()));
        let (key, zero) = parent(0);
        model.add(
            Node::new("out", "NetOutput")
                .inputs(&["neg:0"])
                .input_attr(key, zero),
        );
    }
    let graph = read(model.proto());
    assert_eq!(graph, read(model.proto_text()));
    insta::assert_snapshot!(text::print(&graph));
    let refused = error(model.onnx_text());
    assert!(
        refused.contains("does not say which node runs it"),
        "{refused}"
    );
}

#[test]
fn nodes_run_in_the_order_of_their_ids_or_as_their_edges_say() {
    let float = || Tensor::new("DT_FLOAT", &[4]);
    // Not compiled: all ids are 0, and the file may have any order.
    let model = "graph { name: 'g'
        op { name: 'out' type: 'NetOutput' input: 'b:0' }
        op { name: 'after' type: 'NoOp' input: 'out:-1' }
        op { name: 'b' type: 'Neg' input: 'a:0' output_desc { dtype: DT_FLOAT } }
        op { name: 'a' type: 'Data' output_desc { dtype: DT_FLOAT } } }";
    let graph = read(model.as_bytes().to_vec());
    let names = |graph: &Graph| {
        let all = graph.nodes.values().map(|n| n.name.clone());
        all.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&graph), "after a b out");
    // The list of results stands for the node that is missing.
    let mut bare = Model::new("g");
    bare.add(Node::new("a", "Data").output(float()));
    let graph = read(bare.proto());
    assert_eq!(names(&graph), "a NetOutput");
    let model = "graph { output: 'a:0' op { name: 'a' type: 'Data' output_desc { dtype: 1 } } }";
    let graph = read(model.as_bytes().to_vec());
    let out = graph.subgraphs[graph.root].output.unwrap();
    assert_eq!(graph.nodes[out].inputs.len(), 1);
}

#[test]
fn the_recorded_size_holds_and_references_are_found() {
    let text = |body: &str| format!("graph {{ name: 'g' {body} }}").into_bytes();
    let data =
        "op { name: 'x' type: 'Data' output_desc { dtype: DT_FLOAT shape { dim: 4 } size: 64 }
        output_i: 0 }";
    // By name, where a node is a reference.
    let names = "attr { key: 'reference' value { b: true } }
        attr { key: '_input_name_key' value { list { s: 'g' s: 'v' } } }
        attr { key: '_input_name_value' value { list { i: 1 i: 0 } } }
        attr { key: '_output_name_key' value { list { s: 'v' } } }
        attr { key: '_output_name_value' value { list { i: 0 } } }";
    let node = format!(
        "{data} op {{ name: 'y' type: 'Op' input: 'x:0' input: 'x:0' {names}
            output_desc {{ dtype: DT_FLOAT shape {{ dim: 4 }} size: 8 }}
            output_desc {{ dtype: DT_FLOAT shape {{ dim: 4 }} size: 64 }} output_i: 0
            output_desc {{ dtype: DT_FLOAT shape {{ dim: -2 }} }}
            output_desc {{ dtype: DT_FLOAT shape {{ dim: 4 }} }} }}"
    );
    let graph = read(text(&node));
    let hints = |k: usize| {
        let y = graph.nodes.values().find(|n| n.name == "y").unwrap();
        let value = y.output(k).unwrap();
        let bytes = graph.bytes(value).max(graph.asked_bytes(value));
        (
            graph.values[value].hints.as_ref().and_then(|h| h.ref_input),
            bytes,
        )
    };
    // Type and shape of the first need more than there is, and the last takes no memory.
    assert_eq!(hints(0), (Some(0), Some(8)));
    assert_eq!(hints(1), (None, Some(64)));
    assert_eq!(hints(2), (None, None));
    assert_eq!(hints(3), (None, Some(0)));
    // In place by leave.
    let node = format!(
        "{data} op {{ name: 'y' type: 'Op' input: 'x:0'
            attr {{ key: '_output_inplace_ability'
                value {{ list_list_int {{ list_list_i {{ list_i: [0, 0] }} }} }} }}
            output_desc {{ dtype: DT_FLOAT shape {{ dim: 4 }} size: 64 }} output_i: 0 }}"
    );
    let graph = read(text(&node));
    let y = graph.nodes.values().find(|n| n.name == "y").unwrap();
    let id = graph.values[y.output(0).unwrap()].producer;
    let effects = OpTable::builtin(graph.dialect).effects(&graph, id);
    let pairs: Vec<_> = effects
        .in_place
        .iter()
        .map(|a| (a.output, a.input))
        .collect();
    assert_eq!(pairs, [(0, 0)]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let refused = |body: &str| error(format!("graph {{ name: 'g'\n {body} }}").into_bytes());
    for (body, message) in [
        (
            "op { name: 'x' }",
            "node \"x\" (): the node has no operator type",
        ),
        (
            "op { name: 'x' type: 'Op' input: 'y' }",
            "graph \"g\": node \"x\" (Op): input \"y\" is no \"NODE:OUTPUT\"",
        ),
        (
            "op { name: 'x' type: 'Op' input: 'y:0' }",
            "there is no node \"y\" in the graph",
        ),
        (
            "op { name: 'x' type: 'Op' stream_id: -3 }",
            "is on stream -3",
        ),
        (
            "op { name: 'x' type: 'Op' workspace_bytes: -2 }",
            "workspace 0 has -2 bytes",
        ),
        (
            "op { name: 'x' type: 'Op' output_desc { shape { dim: -4 } } }",
            "dimension 0 is -4",
        ),
        (
            "op { name: 'x' type: 'Op' output_desc { reuse_input: true reuse_input_index: 1 } }",
            "output 0 lies in the memory of an input",
        ),
        (
            "op { name: 'x' type: 'Op' input: 'y:0' output_desc {} }\n
             op { name: 'y' type: 'Op' input: 'x:0' output_desc {} }",
            "the nodes form a cycle: \"x\" -> \"y\" -> \"x\"",
        ),
        (
            "op { name: 'x' type: 'Op' subgraph_name: 'h' }",
            "there is no graph \"h\"",
        ),
        (
            "op { name: 'x'\n\n type: Op }",
            "line 4: \"type\" takes a text in quotes",
        ),
        ("op { name: 'x", "line 2: a text in quotes has no end"),
        (
            "op { id: 99999999999999999999 }",
            "\"id\" takes a whole number",
        ),
        (
            "op { output_desc { dtype: DT_FLAOT } }",
            "\"dtype\" takes a name out of a list that \"DT_FLAOT\" is not in",
        ),
        (
            "op { name: 'x' type: 'Op' } >",
            "line 2: '>' does not belong here",
        ),
    ] {
        let found = refused(body);
        assert!(found.contains(message), "{body}: {found}");
    }
    let open = error(b"graph {\n op {\n name: 'x'\n".to_vec());
    assert!(
        open.contains("line 4: the text ends inside 2 messages"),
        "{open}"
    );
    let readable = error(b"graph(\"g\"):\n  %x = Data()\n".to_vec());
    assert!(
        readable.contains("DUMP_GRAPH_FORMAT=ge_proto"),
        "{readable}"
    );
    let onnx = error(b"graph { node { name: 'x' op_type: 'Conv' } }".to_vec());
    assert!(
        onnx.contains("node \"x\": has the operator \"Conv\""),
        "{onnx}"
    );
}

#[test]
fn every_way_to_write_a_text_is_read() {
    let plain = "graph { name: 'g' op { name: 'x' type: 'Data' stream_id: -1
        output_desc { dtype: DT_FLOAT16 shape { dim: 2 dim: 8 } size: 64 } } }";
    let other = "# a note\n graph: < name: \"\\147\" ; op [ { name: 'x', type: 'Da' \"ta\"
        unknown { deep: [1, 2] deeper < a: 'b' c [{ d: 1 }] > } [an.extension]: 4
        stream_id: -0x1, output_desc: { dtype: 2 shape { dim: [2, 010] } size: 6_4 } } ] >";
    let graph = read(plain.as_bytes().to_vec());
    assert_eq!(read(other.replace("6_4", "64").into_bytes()), graph);
    let wrong = error(other.as_bytes().to_vec());
    assert!(
        wrong.contains("line 4: \"size\" takes a whole number"),
        "{wrong}"
    );
}

#[test]
fn many_tensors_are_json_and_an_untold_reference_is_refused() {
    let node = |attributes: &str| {
        format!(
            "graph {{ node {{ name: 'x' op_type: 'ge:Data'
                attribute {{ name: 'output_desc_0' type: STRING
                  s: '{{\"dtype\": \"DT_FLOAT\", \"shape\": [4], \"size\": 64}}' }} }}
              node {{ name: 'y' op_type: 'ge:Op' input: 'x:0' input: 'x:0' {attributes} }} }}"
        )
        .into_bytes()
    };
    let graph = read(node(""));
    let x = graph.nodes.values().find(|n| n.name == "x").unwrap();
    let value = x.output(0).unwrap();
    assert_eq!(
        (graph.bytes(value), graph.asked_bytes(value)),
        (Some(16), Some(64))
    );
    let refused = error(node(
        "attribute { name: 'output_desc_reuse_input:0' i: 1 type: INT }",
    ));
    assert!(refused.contains("does not say of which"), "{refused}");
    let far = error(node(
        "attribute { name: 'output_desc_size:9999' i: 1 type: INT }",
    ));
    assert!(far.contains("speaks of 10000 inputs or outputs"), "{far}");
}

#[test]
fn kinds_of_memory_and_places_of_results_are_taken_over() {
    let float = || Tensor::new("DT_FLOAT", &[4]).size(64);
    let mut model = Model::new("m");
    model.add(Node::new("x", "Data").output(float()).at(&[0]));
    let special = float().attr("_tensor_memory_type", Value::Int(17));
    let node = Node::new("y", "Op").inputs(&["x:0"]);
    model.add(node.output(float()).output(special).at(&[512, 0]));
    // The place of the results is that of what they are: no buffer of their own.
    let out = Node::new("out", "NetOutput").inputs(&["y:0"]);
    model.add(out.output(float()).reads_at(&[512]).at(&[512]));
    let graph = read(model.om(Container::Wide));
    let named = |name: &str| graph.nodes.values().find(|n| n.name == name).unwrap();
    let kinds = named("y").attrs.ints("_output_memory_type");
    assert_eq!(kinds.as_deref(), Some(&[0, 17][..]));
    assert!(named("out").workspace.is_empty());
}

#[test]
fn codes_without_names_are_refused() {
    let mut model = sample();
    model.attr("om_compress_version", Value::Int(1));
    let mut bytes = model.proto();
    // The key of an attribute becomes a code: its first byte is 0.
    let at = bytes.windows(8).position(|w| w == b"event_id").unwrap();
    bytes[at] = 0;
    let refused = error(bytes);
    assert!(refused.contains("byte "), "{refused}");
    assert!(
        refused.contains("has no name") || refused.contains("too long"),
        "{refused}"
    );
}

#[test]
fn each_of_several_models_is_read() {
    let models: Vec<Model> = ["root", "first", "second"]
        .into_iter()
        .map(|name| {
            let mut model = Model::new(name);
            model.attr("memory_size", Value::Int(1024));
            let x = Tensor::new("DT_FLOAT", &[16]).size(96);
            model.add(Node::new(name, "Data").output(x).at(&[512]));
            model.add(Node::new("out", "NetOutput").inputs(&[&format!("{name}:0")]));
            model
        })
        .collect();
    for container in [Container::Narrow, Container::Wide] {
        let bytes = Model::om_of(&models, container);
        let file = |number| ModelFile {
            kind: Kind::GeOm,
            bytes: bytes.clone().into(),
            folder: None,
            number,
        };
        assert_eq!(file(0).models().unwrap(), ["root", "first", "second"]);
        for (number, name) in [(0, "root"), (1, "first"), (2, "second")] {
            let (graph, recorded) = file(number).compiled().unwrap();
            assert_eq!(graph.name, name);
            assert_eq!(recorded.unwrap().values[0].1, 512);
        }
        let error = file(3).graph().unwrap_err().to_string();
        assert_eq!(error, "has no model 3: it holds 3, counted from 0");
        // What is cut behind the first is still that.
        let cut = ModelFile {
            bytes: bytes[..bytes.len() - 1].to_vec().into(),
            ..file(2)
        };
        assert!(cut.graph().is_err());
    }
    let alone = ModelFile {
        kind: Kind::GeOm,
        bytes: models[0].om(Container::Wide).into(),
        folder: None,
        number: 0,
    };
    assert!(alone.models().unwrap().is_empty());
}
