package sqlite

// QueryHead reads how far feeds may read.
const QueryHead = queryHead
