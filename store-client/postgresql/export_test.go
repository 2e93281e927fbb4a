package postgresql

// SchemaLock is the lock under which the schema is made.
const SchemaLock = schemaLock

// QueryHead reads how far feeds may read.
const QueryHead = queryHead
