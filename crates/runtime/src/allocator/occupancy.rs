//! Who still uses a block, as far as each stream knows: the picture of clocks as a table of bits.
//!
//! Row `s` has stream `t` when `s` does not know that all uses by `t` come before its own next
//! operation. Rows have as many bits as there are streams, however many that is.

use fixedbitset::FixedBitSet;

/// The table of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    rows: Vec<FixedBitSet>,
}

/// A stream that the table does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no stream {stream} among {streams}")]
pub struct NoSuchRow {
    /// The stream.
    pub stream: usize,
    /// How many there are.
    pub streams: usize,
}

impl Occupancy {
    /// The table of a block that nobody uses.
    #[must_use]
    pub fn new(streams: usize) -> Self {
        Occupancy {
            rows: vec![FixedBitSet::with_capacity(streams); streams],
        }
    }

    fn check(&self, streams: &[usize]) -> Result<(), NoSuchRow> {
        let count = self.rows.len();
        let mut bad = streams.iter().filter(|&&stream| stream >= count);
        bad.next().map_or(Ok(()), |&stream| {
            let streams = count;
            Err(NoSuchRow { stream, streams })
        })
    }

    /// Stream `row` thinks that `stream` uses the block, or that it does not.
    ///
    /// # Errors
    /// [`NoSuchRow`].
    pub fn set(&mut self, row: usize, stream: usize, uses: bool) -> Result<(), NoSuchRow> {
        self.check(&[row, stream])?;
        self.rows[row].set(stream, uses);
        Ok(())
    }

    /// All streams think that `stream` uses the block.
    ///
    /// # Errors
    /// [`NoSuchRow`].
    pub fn set_all(&mut self, stream: usize) -> Result<(), NoSuchRow> {
        self.check(&[stream])?;
        self.rows.iter_mut().for_each(|row| row.insert(stream));
        Ok(())
    }

    /// Stream `row` thinks that all streams use the block.
    ///
    /// # Errors
    /// [`NoSuchRow`].
    pub fn set_row(&mut self, row: usize) -> Result<(), NoSuchRow> {
        self.check(&[row])?;
        self.rows[row].insert_range(..);
        Ok(())
    }

    /// Stream `to` is told by `from`, and knows then of every release that one of the two knew of.
    ///
    /// # Errors
    /// [`NoSuchRow`].
    pub fn merge(&mut self, from: usize, to: usize) -> Result<(), NoSuchRow> {
        self.check(&[from, to])?;
        let told = self.rows[from].clone();
        self.rows[to].intersect_with(&told);
        Ok(())
    }

    /// The streams that use the block, as far as stream `row` knows.
    pub fn row(&self, row: usize) -> impl Iterator<Item = usize> {
        self.rows.get(row).into_iter().flat_map(FixedBitSet::ones)
    }
}
