package mongodb_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/internal/cutproxy"
	"github.com/nvidia/nvsentinel/store-client/mongodb"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

func TestMain(m *testing.M) {
	if storetest.Child() {
		os.Exit(m.Run())
	}
	os.Exit(mongotest.Main(m))
}

func TestConformance(t *testing.T) {
	if !storetest.Child() {
		mongotest.Need(t)
	}
	storetest.Run(t, storetest.Backend{
		Name: "mongodb", New: mongotest.Database, Interrupt: interrupt, Late: mongodb.Late, Repeats: true, Slow: true,
		Damage: damage, Orphans: func(t testing.TB) bool { return mongotest.Addr(t) != "" },
		Poison: func(t testing.TB, dsn, id string) {
			change(t, dsn, mongodb.Events, id, bson.D{{Key: "exact", Value: `{"revision": "not a number"}`}})
		},
		Edit: edit,
		Schema: func(t testing.TB, dsn string, newer bool) {
			version := 1
			if newer {
				version = 1000
			}
			change(t, dsn, mongodb.Schemas, "schema", bson.D{{Key: "version", Value: version}})
		},
		PoisonMaintenance: func(t testing.TB, dsn, csp, id string) {
			change(t, dsn, mongodb.Announced, csp+"/"+id, bson.D{{Key: "exact", Value: `{"revision": "not a number"}`}})
		},
	})
}

// line is a breaking line to the server of dsn; the address goes through it.
func line(t testing.TB, dsn string) (*cutproxy.Proxy, string) {
	t.Helper()
	_, rest, _ := strings.Cut(dsn, "://")
	addr, path, _ := strings.Cut(rest, "/")
	p, err := cutproxy.Start(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, "mongodb://" + p.Addr() + "/" + path
}

// interrupt breaks the line at the first command that writes records: an
// append's, or a transaction's commit.
func interrupt(t testing.TB, dsn string) (store.Store, func(bool)) {
	command := "insert\x00\r\x00\x00\x00" + mongodb.Events
	if strings.Contains(t.Name(), "update") {
		command = "commitTransaction"
	}
	p, through := line(t, dsn)
	return storetest.Open(t, through+"&retryWrites=false", storeopen.Options{}), func(before bool) {
		action := cutproxy.CutAfter
		if before {
			action = cutproxy.CutBefore
		}
		p.Set(command, action)
	}
}

// damage harms a consumer's stored position.
func damage(t testing.TB, dsn, consumer string, d storetest.Damage) {
	t.Helper()
	set := bson.D{{Key: "position", Value: d.Position}}
	switch d.Position {
	case storetest.Elsewhere:
		set[0].Value = storetest.EditPosition(t, text(t, dsn, consumer), "s", "another server")
	case storetest.Beyond:
		set[0].Value = storetest.EditPosition(t, text(t, dsn, consumer), "h", int64(1)<<50)
	}
	if d.Mark {
		set = append(set, bson.E{Key: "mark", Value: nil})
	}
	change(t, dsn, mongodb.Positions, consumer, set)
}

func text(t testing.TB, dsn, consumer string) string {
	t.Helper()
	var l struct{ Position string }
	if err := raw(t, dsn).Collection(mongodb.Positions).FindOne(t.Context(), bson.D{{Key: "_id", Value: consumer}}).Decode(&l); err != nil {
		t.Fatalf("reading the position of %s: %v", consumer, err)
	}
	return l.Position
}

// raw opens the database beside the store.
func raw(t testing.TB, dsn string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	_, rest, _ := strings.Cut(dsn, "://")
	_, path, _ := strings.Cut(rest, "/")
	name, _, _ := strings.Cut(path, "?")
	return client.Database(name)
}

// edit changes a document as services read it; see storetest.Backend.
func edit(t testing.TB, dsn, id string, to func(doc []byte) []byte) {
	t.Helper()
	for _, collection := range []string{mongodb.Events, mongodb.Announced, mongodb.Providers} {
		var doc struct{ Exact string }
		err := raw(t, dsn).Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc)
		if errors.Is(err, mongo.ErrNoDocuments) {
			continue
		}
		if err != nil {
			t.Fatalf("reading the document %s: %v", id, err)
		}
		if text := to([]byte(doc.Exact)); text != nil {
			change(t, dsn, collection, id, bson.D{{Key: "exact", Value: string(text)}})
		}
		return
	}
	t.Fatalf("there is no document %s", id)
}

// change sets fields of exactly one document.
func change(t testing.TB, dsn, collection, id string, set bson.D) {
	t.Helper()
	res, err := raw(t, dsn).Collection(collection).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: set}})
	if err != nil || res.MatchedCount != 1 {
		t.Fatalf("changing %s of %s: %+v, %v", id, collection, res, err)
	}
}
