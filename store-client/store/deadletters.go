package store

import "time"

// DeadLetterBound bounds the dead letters of each source of a kind: the newest Count, with
// Bytes in their bodies together, no older than Age. 0 is no bound.
type DeadLetterBound struct {
	// Source is the source, or with Prefix what the names of sources begin with.
	Source string
	Prefix bool
	Count  int
	Bytes  int64
	Age    time.Duration
}

// Connectors is the source of the dead letters of connectors; with "/" and a node's name
// that of the node's.
const Connectors = "platform-connectors"

// NodesUse is the source of what gateways note of nodes' quotas, day by day.
const NodesUse = "what nodes have brought"

// deadLetterAge is how long a dead letter is kept, which is how long a record is.
const deadLetterAge = 30 * 24 * time.Hour

// OfConnectors bounds the dead letters of each node's connector: who is root on the node
// makes as many as it likes.
func OfConnectors() DeadLetterBound {
	return DeadLetterBound{Source: Connectors, Prefix: true, Count: 1000, Bytes: 16 << 20, Age: deadLetterAge}
}

// DeadLetterBounds are the bounds of all sources whose letters go in time. Those that say how
// processes ended, or what a service passes over, stay until somebody takes them away.
func DeadLetterBounds() []DeadLetterBound {
	return []DeadLetterBound{
		OfConnectors(),
		{Source: Undecodable, Count: 1000, Bytes: 256 << 20},
		{Source: "feed of ", Prefix: true, Count: 1000, Bytes: 256 << 20},
		{Source: "event-exporter", Age: deadLetterAge},
		{Source: "health-events-analyzer", Age: deadLetterAge},
		{Source: NodesUse, Count: 100, Age: 48 * time.Hour},
	}
}
