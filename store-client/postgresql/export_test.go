package postgresql

// SchemaLock is the lock under which the schema is made.
const SchemaLock = schemaLock

// Strays ends sessions of accounts that only append.
var Strays = strays
