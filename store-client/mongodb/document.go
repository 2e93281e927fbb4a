package mongodb

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/store"
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
	exact, err := record.AppendJSON(nil, r)
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

// stored is the part of a document that is read back. Every account that may append may
// have made the document, so a field of another type is the document's problem and not that
// of the query that comes across it.
type stored struct {
	ID        string
	Exact     string
	Append    int64
	Revision  int64
	StoredAt  time.Time
	ChangedAt time.Time

	// key is the id as it is in the document.
	key     bson.RawValue
	problem error
	// doc is what was read.
	doc bson.Raw
}

// projection is the projection of stored.
func projection() bson.D {
	return bson.D{
		{Key: "exact", Value: 1}, {Key: "append", Value: 1}, {Key: "revision", Value: 1},
		{Key: "storedat", Value: 1}, {Key: "changedat", Value: 1},
	}
}

// UnmarshalBSON never fails: decode returns what is wrong, also of a field that is missing.
func (s *stored) UnmarshalBSON(data []byte) error {
	doc := bson.Raw(slices.Clone(data))
	*s = stored{key: doc.Lookup("_id"), doc: doc}
	var ok [6]bool
	if s.ID, ok[0] = s.key.StringValueOK(); !ok[0] {
		s.ID = s.key.String()
	}
	if s.Exact, ok[1] = doc.Lookup("exact").StringValueOK(); !ok[1] {
		s.Exact = doc.Lookup("exact").String()
	}
	s.Append, ok[2] = whole64(doc.Lookup("append"))
	s.Revision, ok[3] = whole64(doc.Lookup("revision"))
	s.StoredAt, ok[4] = doc.Lookup("storedat").TimeOK()
	s.ChangedAt, ok[5] = doc.Lookup("changedat").TimeOK()
	s.StoredAt, s.ChangedAt = s.StoredAt.UTC(), s.ChangedAt.UTC()
	if ok != [6]bool{true, true, true, true, true, true} {
		s.problem = errors.New("a field is missing or of another type")
	}
	return nil
}

// whole64 is an integer; a number with a fraction is none.
func whole64(v bson.RawValue) (int64, bool) {
	if v.Type == bson.TypeDouble {
		return 0, false
	}
	return v.AsInt64OK()
}

// decode is the record. Its id, place and revision are those of the document
// around it: pages go on behind the place, and updates compare the revision.
func (s stored) decode() (record.Record, error) {
	var r record.Record
	err := s.problem
	if err == nil {
		r, err = record.Decode([]byte(s.Exact))
	}
	if err == nil && (r.ID != s.ID || r.Append != s.Append || r.Revision != s.Revision) {
		err = errors.New("its ID, position or revision differs from the enclosing document")
	}
	if err != nil {
		return record.Record{}, fmt.Errorf("%w: %w", store.ErrUndecodable, err)
	}
	return r, nil
}

// take is the document and the record that it is.
func (s stored) take() (record.Record, provider.Document) {
	r, err := s.decode()
	return r, provider.Document{ID: s.ID, Body: []byte(s.Exact), Why: err}
}

// replacement is the document of a record after a change, in the place of the stored
// one, which is of the record before it. What this version does not know of the stored
// document stays in it.
func replacement(stored bson.Raw, before, after document) (any, error) {
	var trees [3]any
	for i, doc := range []any{stored, before, after} {
		data, err := marshal(doc)
		if err != nil {
			return nil, err
		}
		if trees[i], err = tree(data); err != nil {
			return nil, err
		}
	}
	if x := extra.Prune(trees[0], trees[1]); x != nil {
		return x.Merge(trees[2]), nil
	}
	return after, nil
}

// marshal encodes as the client does.
func marshal(doc any) ([]byte, error) {
	var out bytes.Buffer
	e := bson.NewEncoder(bson.NewDocumentWriter(&out))
	e.UseJSONStructTags()
	e.SetRegistry(registry())
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnstorable, err)
	}
	return out.Bytes(), nil
}

// tree decodes a document with all of its types.
func tree(data []byte) (any, error) {
	types := bson.NewRegistry()
	types.RegisterTypeMapEntry(bson.TypeEmbeddedDocument, reflect.TypeFor[map[string]any]())
	types.RegisterTypeMapEntry(bson.TypeArray, reflect.TypeFor[[]any]())
	d := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(data)))
	d.SetRegistry(types)
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("reading the unknown fields: %w", err)
	}
	return out, nil
}

// registry writes a quarantine state that fault-quarantine has not set as null, as JSON does.
func registry() *bson.Registry {
	r := bson.NewRegistry()
	r.RegisterTypeEncoder(reflect.TypeFor[record.Quarantine](), bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		if v.Len() == 0 {
			return w.WriteNull()
		}
		return w.WriteString(v.String())
	}))
	return r
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
		index("backlog", "verdict", "healthevent.nodename", "append"),                  // unevaluated and Held
		index("recoveries", "healthevent.nodename", "healthevent.ishealthy", "append"), // what may have cleared a fault
		index("session", "healtheventstatus.session", "append"),                        // the records of a quarantine
		index("counter", "seqepoch", "seq"),                                            // a publisher's newest record
		index("unfinished", "isfinished", "append"), index("changed", "changedat"),     // reading again after a lost position
		index("stored", "storedat"), index("expiry", "expireAt"), // and retention
	}
}
