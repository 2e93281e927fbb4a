package mongodb

import (
	"encoding/json"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// document is a stored record: its own fields in the shape that all stores
// have, for queries and people, and what the queries need besides.
type document struct {
	ID        string              `json:"_id"`
	CreatedAt time.Time           `json:"createdAt"`
	Revision  int64               `json:"revision"`
	Append    int64               `json:"append"`
	Node      record.NodeIdentity `json:"node"`
	// Seq orders as text as the counter does as a number: no number of BSON
	// holds all of uint64.
	Seq      string        `json:"seq"`
	SeqEpoch string        `json:"seqepoch"`
	Event    record.Event  `json:"healthevent"`
	Status   record.Status `json:"healtheventstatus"`
	ExpireAt *time.Time    `json:"expireAt"`

	// Exact is the record itself as JSON. It is what services read: a date of
	// BSON holds milliseconds, a record nanoseconds.
	Exact  string `json:"exact"`
	Digest string `json:"digest"`
	// StoredAt and ChangedAt are the server's time of the insertion and of the
	// last change.
	StoredAt  time.Time `json:"storedat"`
	ChangedAt time.Time `json:"changedat"`
	// Computed from the record at every write, as the SQL stores do.
	Open     bool   `json:"isopen"`
	Finished bool   `json:"isfinished"`
	Verdict  string `json:"verdict"`
}

// encode makes the document of a record that was stored and changed at the
// given times.
func encode(r record.Record, storedAt, changedAt time.Time) (document, error) {
	exact, err := json.Marshal(r)
	if err != nil {
		return document{}, fmt.Errorf("record %q: %w: %w", r.ID, provider.ErrUnstorable, err)
	}
	return document{
		ID: r.ID, CreatedAt: r.CreatedAt, Revision: r.Revision, Append: r.Append, Node: r.Node,
		Seq: provider.SortableSeq(r.Seq), SeqEpoch: r.SeqEpoch, Event: r.Event, Status: r.Status, ExpireAt: r.ExpireAt,
		Exact: string(exact), Digest: record.Content(r), StoredAt: storedAt, ChangedAt: changedAt,
		Open: record.Open(r), Finished: record.Finished(r), Verdict: string(r.Reason()),
	}, nil
}

// stored is the part of a document that is read back.
type stored struct {
	ID        string    `json:"_id"`
	Exact     string    `json:"exact"`
	Append    int64     `json:"append"`
	StoredAt  time.Time `json:"storedat"`
	ChangedAt time.Time `json:"changedat"`
}

// whole is the projection of stored.
func whole() bson.D {
	return bson.D{{Key: "exact", Value: 1}, {Key: "append", Value: 1}, {Key: "storedat", Value: 1}, {Key: "changedat", Value: 1}}
}

func (s stored) decode() (record.Record, error) {
	var r record.Record
	if err := json.Unmarshal([]byte(s.Exact), &r); err != nil {
		return r, fmt.Errorf("decoding the stored document: %w", err)
	}
	return r, nil
}

// indexes are those of the services' queries. MongoDB could delete expired
// records itself; here as in every store Expire does, because fault-quarantine
// alone decides when, and counts it.
func indexes() []mongo.IndexModel {
	index := func(name string, fields ...string) mongo.IndexModel {
		keys := bson.D{}
		for _, f := range fields {
			keys = append(keys, bson.E{Key: f, Value: 1})
		}
		return mongo.IndexModel{Keys: keys, Options: options.Index().SetName(name)}
	}
	open := index("open", "isopen", "healthevent.nodename", "append")
	open.Options.SetPartialFilterExpression(bson.D{{Key: "isopen", Value: true}})
	return []mongo.IndexModel{
		index("append", "append"),                       // pages of everything, the first reading of a feed
		index("node", "healthevent.nodename", "append"), // a node's story
		open, // open work, of a node or of all
		index("backlog", "verdict", "healthevent.nodename", "append"),                  // unjudged and Held
		index("recoveries", "healthevent.nodename", "healthevent.ishealthy", "append"), // what may have cleared a fault
		index("session", "healtheventstatus.session", "append"),                        // the records of a quarantine
		index("counter", "seqepoch", "seq"),                                            // a publisher's newest record
		index("unfinished", "isfinished", "append"), index("changed", "changedat"),     // reading again after a lost position
		index("stored", "storedat"), index("expiry", "expireAt"), // and retention
	}
}
