//! Text to a graph: recursive descent with one token of foresight, two where a role stands.
//!
//! Recursion is bounded: subgraphs by [`MAX_DEPTH`], lists and maps by [`MAX_ATTR_DEPTH`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::TextError;
use super::lex::{At, Kind, Lexer, Token, error};
use crate::elements::from_list;
use crate::ir::runs_nothing;
use crate::link::{GraphDef, ModelDef, NodeDef, OutputDef, Ref, RefTo, link};
use crate::verify::{MAX_ATTR_DEPTH, MAX_DEPTH};
use crate::{
    Attr, Attrs, DType, Dialect, Dim, Graph, OutputHints, Shape, StreamId, Tensor, TensorData,
};

/// Reads a graph.
///
/// # Errors
/// What is wrong with the text or with the graph that it spells out, and where: line and column of
/// the token, or of the node.
pub fn parse(text: &str) -> Result<Graph, TextError> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        ahead: VecDeque::new(),
        graphs: Vec::new(),
        places: Vec::new(),
    };
    let model = parser.model()?;
    let places = parser.places;
    let graph = link(model).map_err(|e| {
        let (graph, node) = e.place.at;
        let at = places
            .get(graph)
            .and_then(|(at, nodes)| match e.place.node {
                Some(_) => nodes.get(node),
                None => Some(at),
            });
        error(at.copied().unwrap_or((1, 1)), e.to_string())
    })?;
    match crate::verify::verify(&graph) {
        Ok(()) => Ok(graph),
        Err(broken) => {
            let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
            Err(error((1, 1), broken.join("; ")))
        }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Tokens that were looked at and not yet taken.
    ahead: VecDeque<Token>,
    graphs: Vec<GraphDef>,
    /// Places of the graphs and of their nodes.
    places: Vec<(At, Vec<At>)>,
}

type Parsed<T> = Result<T, TextError>;

impl Parser<'_> {
    fn peek_at(&mut self, i: usize) -> Parsed<&Token> {
        while self.ahead.len() <= i {
            let token = self.lexer.next()?;
            self.ahead.push_back(token);
        }
        Ok(&self.ahead[i])
    }

    fn peek(&mut self) -> Parsed<&Token> {
        self.peek_at(0)
    }

    fn next(&mut self) -> Parsed<Token> {
        match self.ahead.pop_front() {
            Some(token) => Ok(token),
            None => self.lexer.next(),
        }
    }

    /// Takes the mark, if it is next.
    fn eat(&mut self, mark: char) -> Parsed<bool> {
        let is_next = self.peek()?.kind == Kind::Mark(mark);
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    /// Takes the word, if it is next.
    fn eat_word(&mut self, word: &str) -> Parsed<bool> {
        let is_next = matches!(&self.peek()?.kind, Kind::Word(w) if w == word);
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, mark: char) -> Parsed<()> {
        let token = self.next()?;
        if token.kind == Kind::Mark(mark) {
            Ok(())
        } else {
            Err(unexpected(&token, &format!("{:?}", mark.to_string())))
        }
    }

    /// Items between brackets, with commas between them.
    fn between<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.eat(close)? {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn name(&mut self) -> Parsed<String> {
        let token = self.next()?;
        match token.kind {
            Kind::Word(name) | Kind::Str(name) => Ok(name),
            _ => Err(unexpected(&token, "a name")),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let token = self.next()?;
        let number = match &token.kind {
            Kind::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| unexpected(&token, what))
    }

    fn model(&mut self) -> Parsed<ModelDef> {
        if !self.eat_word("model")? {
            let token = self.next()?;
            return Err(unexpected(&token, "\"model\" and the model's name"));
        }
        let name = self.name()?;
        let mut dialect = Dialect::Ge;
        if let Kind::Word(word) = &self.peek()?.kind
            && let Some(known) = Dialect::from_name(word)
        {
            dialect = known;
            self.next()?;
        }
        let mut opsets = Vec::new();
        if self.eat_word("opsets")? {
            opsets = self.between('[', ']', |p| {
                Ok((Arc::from(p.name()?), p.number("a version")?))
            })?;
        }
        let mut options = Attrs::new();
        if self.eat_word("options")? {
            options = self.map('{', '}', MAX_ATTR_DEPTH)?;
        }
        if !self.eat_word("graph")? {
            let token = self.next()?;
            return Err(unexpected(&token, "\"graph\" and the root"));
        }
        self.body(0)?;
        let end = self.next()?;
        if end.kind != Kind::End {
            return Err(unexpected(&end, "the end"));
        }
        Ok(ModelDef {
            name,
            dialect,
            opsets,
            options,
            graphs: std::mem::take(&mut self.graphs),
        })
    }

    /// A graph, from its name on; returns the name.
    fn body(&mut self, depth: usize) -> Parsed<String> {
        let token = self.next()?;
        let Kind::Graph(name) = token.kind else {
            return Err(unexpected(&token, "a graph's name after \"^\""));
        };
        if depth > MAX_DEPTH {
            let problem = format!("graphs are nested more than {MAX_DEPTH} deep");
            return Err(error(token.at, problem));
        }
        let index = self.graphs.len();
        self.places.push((token.at, Vec::new()));
        let attrs = if self.eat_word("with")? {
            self.map('{', '}', MAX_ATTR_DEPTH)?
        } else {
            Attrs::new()
        };
        self.graphs.push(GraphDef {
            name: name.clone(),
            attrs,
            nodes: Vec::new(),
        });
        self.expect('{')?;
        while !self.eat('}')? {
            let at = self.peek()?.at;
            let node = self.node(depth)?;
            self.graphs[index].nodes.push(node);
            self.places[index].1.push(at);
        }
        Ok(name)
    }

    fn node(&mut self, depth: usize) -> Parsed<NodeDef> {
        let at = self.peek()?.at;
        let mut outputs = Vec::new();
        while matches!(&self.peek()?.kind, Kind::Value(_))
            || matches!(&self.peek()?.kind, Kind::Word(w) if w == "_")
        {
            outputs.push(self.output()?);
            if !self.eat(',')? {
                self.expect('=')?;
                break;
            }
        }
        let mut op = self.name()?;
        let mut domain = String::new();
        if self.peek()?.kind == Kind::Path {
            self.next()?;
            domain = std::mem::replace(&mut op, self.name()?);
        }
        let inputs = self.between('(', ')', Self::input)?;
        let op: Arc<str> = op.into();
        let first = outputs.first().and_then(|o| o.as_ref()?.name.clone());
        let mut node = NodeDef {
            name: String::new(),
            stream: (!runs_nothing(&op)).then(|| StreamId::from_u32(0)),
            op,
            domain: domain.into(),
            inputs,
            outputs,
            control: Vec::new(),
            attrs: Attrs::new(),
            input_attrs: Vec::new(),
            bodies: Vec::new(),
            workspace: Vec::new(),
            extra: Attrs::new(),
        };
        let name = self.parts(&mut node)?;
        node.name = name.or(first).ok_or_else(|| {
            error(
                at,
                "a node without outputs needs a name: write @NAME behind it",
            )
        })?;
        while matches!(self.peek()?.kind, Kind::Word(_) | Kind::Str(_))
            && matches!(self.peek_at(1)?.kind, Kind::Graph(_))
        {
            let role = self.name()?;
            let body = self.body(depth + 1)?;
            node.bodies.push((role.into(), body));
        }
        Ok(node)
    }

    /// What stands behind the inputs on the same line; returns the node's name.
    fn parts(&mut self, node: &mut NodeDef) -> Parsed<Option<String>> {
        let mut name = None;
        loop {
            let token = self.peek()?;
            if token.first {
                return Ok(name);
            }
            match &token.kind {
                Kind::Node(found) => {
                    name = Some(found.clone());
                    self.next()?;
                }
                Kind::Mark('{') => node.attrs = self.map('{', '}', MAX_ATTR_DEPTH)?,
                Kind::Word(word) => match &**word {
                    "after" => {
                        self.next()?;
                        node.control.push(self.node_name()?);
                        while self.eat(',')? {
                            node.control.push(self.node_name()?);
                        }
                    }
                    "stream" => {
                        self.next()?;
                        node.stream = self.stream()?;
                    }
                    "inputs" => {
                        self.next()?;
                        node.input_attrs =
                            self.between('[', ']', |p| p.map('{', '}', MAX_ATTR_DEPTH))?;
                    }
                    "workspace" => {
                        self.next()?;
                        node.workspace =
                            self.between('[', ']', |p| p.number("a number of bytes"))?;
                    }
                    "with" => {
                        self.next()?;
                        node.extra = self.map('{', '}', MAX_ATTR_DEPTH)?;
                    }
                    _ => return Ok(name),
                },
                _ => return Ok(name),
            }
        }
    }

    fn node_name(&mut self) -> Parsed<String> {
        let token = self.next()?;
        match token.kind {
            Kind::Node(name) => Ok(name),
            _ => Err(unexpected(&token, "a node's name after \"@\"")),
        }
    }

    fn stream(&mut self) -> Parsed<Option<StreamId>> {
        if self.eat_word("none")? {
            return Ok(None);
        }
        let token = self.peek()?.clone();
        match self.number("a stream's number or \"none\"")? {
            u32::MAX => Err(unexpected(&token, "a stream's number or \"none\"")),
            stream => Ok(Some(StreamId::from_u32(stream))),
        }
    }

    fn input(&mut self) -> Parsed<Option<Ref>> {
        let token = self.next()?;
        let name = match token.kind {
            Kind::Word(word) if word == "_" => return Ok(None),
            Kind::Value(name) => name,
            _ => return Err(unexpected(&token, "a value's name after \"%\", or \"_\"")),
        };
        let graph = match &self.peek()?.kind {
            Kind::Graph(graph) => Some(graph.clone()),
            _ => None,
        };
        if graph.is_some() {
            self.next()?;
        }
        Ok(Some(Ref {
            graph,
            to: RefTo::Name(name),
        }))
    }

    fn output(&mut self) -> Parsed<Option<OutputDef>> {
        let token = self.next()?;
        let Kind::Value(name) = token.kind else {
            // The caller saw a value or "_".
            return Ok(None);
        };
        self.expect(':')?;
        let dtype = self.dtype()?;
        let shape = if self.peek()?.kind == Kind::Mark('[') {
            Some(
                self.between('[', ']', Self::dim)?
                    .into_iter()
                    .collect::<Shape>(),
            )
        } else {
            None
        };
        let at = self.peek()?.at;
        let hints = if self.peek()?.kind == Kind::Mark('<') {
            let entries = self.map('<', '>', MAX_ATTR_DEPTH)?;
            hints(&entries).map_err(|key| error(at, format!("{key:?} has a wrong value")))?
        } else {
            OutputHints::default()
        };
        Ok(Some(OutputDef {
            name: Some(name),
            dtype,
            shape,
            hints: (hints != OutputHints::default()).then(|| Box::new(hints)),
        }))
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let token = self.next()?;
        match &token.kind {
            Kind::Word(name) => name
                .parse()
                .map_err(|e: crate::UnknownDType| error(token.at, e.to_string())),
            _ => Err(unexpected(&token, "an element type")),
        }
    }

    fn dim(&mut self) -> Parsed<Dim> {
        let token = self.peek()?.clone();
        match token.kind {
            Kind::Mark('?') => {
                self.next()?;
                Ok(Dim::Unknown)
            }
            Kind::Str(formula) => {
                self.next()?;
                Ok(Dim::parse(&formula))
            }
            _ => Ok(Dim::Known(
                self.number("a size, a formula in quotes or \"?\"")?,
            )),
        }
    }

    /// Named attributes; `depth` is how many lists and maps may stand inside.
    fn map(&mut self, open: char, close: char, depth: usize) -> Parsed<Attrs> {
        let entries = self.between(open, close, |p| {
            let name = p.name()?;
            p.expect('=')?;
            Ok((name, p.attr(depth)?))
        })?;
        Ok(entries.into_iter().collect())
    }

    fn attr(&mut self, depth: usize) -> Parsed<Attr> {
        let token = self.peek()?.clone();
        let inside = || {
            let problem = format!("lists and maps nest more than {MAX_ATTR_DEPTH} deep");
            depth.checked_sub(1).ok_or_else(|| error(token.at, problem))
        };
        let attr = match &token.kind {
            Kind::Mark('[') => {
                let depth = inside()?;
                return Ok(Attr::List(self.between('[', ']', |p| p.attr(depth))?));
            }
            Kind::Mark('{') => return Ok(Attr::Map(self.map('{', '}', inside()?)?)),
            Kind::Str(text) => Attr::Str(text.clone()),
            Kind::Bytes(bytes) => Attr::Bytes(bytes.clone().into()),
            Kind::Number(digits) => {
                number(digits).ok_or_else(|| unexpected(&token, "a number of 64 bits"))?
            }
            Kind::Word(word) => match &**word {
                "null" => Attr::Null,
                "true" => Attr::Bool(true),
                "false" => Attr::Bool(false),
                "inf" => Attr::Float(f64::INFINITY),
                "nan" => Attr::Float(f64::NAN),
                _ => return Ok(Attr::Tensor(Arc::new(self.tensor()?))),
            },
            _ => return Err(unexpected(&token, "the value of an attribute")),
        };
        self.next()?;
        Ok(attr)
    }

    fn tensor(&mut self) -> Parsed<Tensor> {
        let dtype = self.dtype()?;
        let shape = self.between('[', ']', |p| p.number("a size"))?;
        let mut tensor = Tensor {
            dtype,
            shape,
            data: TensorData::Absent,
        };
        let token = self.peek()?.clone();
        tensor.data = match token.kind {
            Kind::Mark('?') => {
                self.next()?;
                TensorData::Absent
            }
            Kind::Bytes(bytes) => {
                self.next()?;
                TensorData::Bytes(bytes.into())
            }
            Kind::Word(word) if word == "at" => {
                self.next()?;
                TensorData::External {
                    location: self.name()?,
                    offset: self.number("the first byte")?,
                    length: match self.peek()?.kind {
                        Kind::Number(_) => Some(self.number("a number of bytes")?),
                        _ => None,
                    },
                }
            }
            Kind::Mark('[') => {
                let list = self.between('[', ']', |p| p.attr(0))?;
                from_list(dtype, tensor.elements(), list).map_err(|e| error(token.at, e))?
            }
            _ => {
                return Err(unexpected(
                    &token,
                    "contents: a list, bytes, \"at\" or \"?\"",
                ));
            }
        };
        Ok(tensor)
    }
}

fn unexpected(token: &Token, wanted: &str) -> TextError {
    error(token.at, format!("expected {wanted}, found {}", token.kind))
}

/// A number as an attribute.
fn number(digits: &str) -> Option<Attr> {
    if let Ok(i) = digits.parse() {
        return Some(Attr::Int(i));
    }
    if digits == "-inf" {
        return Some(Attr::Float(f64::NEG_INFINITY));
    }
    // Rust also reads words such as "infinity", and integers that are too large.
    let is_float = digits.contains(['.', 'e', 'E']);
    let plain = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
    let float = digits.parse().ok();
    float
        .filter(|f: &f64| is_float && digits.chars().all(plain) && f.is_finite())
        .map(Attr::Float)
}

/// What the entries behind an output say; an error is the key whose value is wrong.
fn hints(entries: &Attrs) -> Result<OutputHints, String> {
    let mut hints = OutputHints::default();
    let index = |attr: &Attr| u32::try_from(attr.as_int()?).ok();
    for (key, attr) in entries.iter() {
        let done = match (key, attr) {
            ("ref_input", _) => index(attr).map(|i| hints.ref_input = Some(i)),
            ("reuse_input", _) => index(attr).map(|i| hints.reuse_input = Some(i)),
            ("size", _) => {
                let bytes = attr.as_int().and_then(|n| u64::try_from(n).ok());
                bytes.map(|n| hints.size = Some(n))
            }
            ("may_inplace", Attr::List(list)) => {
                let list: Option<Vec<u32>> = list.iter().map(index).collect();
                list.map(|list| hints.may_inplace = list)
            }
            ("shape_range", Attr::List(list)) => {
                let pair = |a: &Attr| <[i64; 2]>::try_from(a.as_ints()?).ok();
                let list: Option<Vec<[i64; 2]>> = list.iter().map(pair).collect();
                list.map(|list| hints.shape_range = list)
            }
            ("attrs", Attr::Map(attrs)) => {
                hints.attrs = attrs.clone();
                Some(())
            }
            ("may_inplace" | "shape_range" | "attrs", _) => None,
            _ => {
                hints.extra.set(key, attr.clone());
                Some(())
            }
        };
        done.ok_or(key)?;
    }
    Ok(hints)
}
