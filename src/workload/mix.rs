//! Which profile comes next: the card deck of TPC-C 5.2.4.2 and weighted choice.
