//! Sets of steps as ascending, disjoint spans.

use tenure_graph::plan::{Life, Span};

/// Sorts spans and joins those that meet or touch.
pub(crate) fn normalise(spans: &mut Life) {
    if spans.len() < 2 {
        return;
    }
    spans.sort_unstable();
    let mut kept = 0;
    for i in 1..spans.len() {
        let span = spans[i];
        if span.first <= spans[kept].last.saturating_add(1) {
            spans[kept].last = spans[kept].last.max(span.last);
        } else {
            kept += 1;
            spans[kept] = span;
        }
    }
    spans.truncate(kept + 1);
}

/// Whether two spans have a step in common.
pub(crate) fn meet(a: Span, b: Span) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// Takes the steps of `hole` out of `span`, which begins before and ends after it or misses it.
pub(crate) fn without(span: Span, holes: &[Span], out: &mut Life) {
    let mut first = span.first;
    for hole in holes {
        if hole.first > first {
            out.push(Span {
                first,
                last: hole.first - 1,
            });
        }
        first = first.max(hole.last + 1);
    }
    if first <= span.last {
        out.push(Span {
            first,
            last: span.last,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn span(first: u32, last: u32) -> Span {
        Span { first, last }
    }

    #[test]
    fn normalising_joins_touching_spans() {
        let mut life: Life = smallvec![span(5, 6), span(0, 2), span(3, 3), span(8, 9)];
        normalise(&mut life);
        assert_eq!(life[..], [span(0, 3), span(5, 6), span(8, 9)]);
    }

    #[test]
    fn holes_are_left_out() {
        let mut life = Life::new();
        without(span(0, 9), &[span(2, 3), span(6, 7)], &mut life);
        assert_eq!(life[..], [span(0, 1), span(4, 5), span(8, 9)]);
    }
}
