package mongodb

import (
	"context"
	"log/slog"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// Schemas is the collection of the schema's version.
const Schemas = schemas

// Late stores r in a transaction of its own that begins before whatever comes next, and
// ends when the returned function is called.
func Late(t testing.TB, dsn string, r record.Record) func() {
	t.Helper()
	ctx := context.Background()
	s, err := Open(ctx, dsn, Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	n, at, err := s.reserve(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.Append = n
	doc, err := encode(r, at, at)
	if err != nil {
		t.Fatal(err)
	}
	inside := mongo.NewSessionContext(ctx, session)
	if _, err := s.events().UpdateOne(inside, byID(r.ID), bson.D{{Key: "$setOnInsert", Value: doc}}, options.UpdateOne().SetUpsert(true)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := session.CommitTransaction(ctx); err != nil {
			t.Error(err)
		}
		session.EndSession(ctx)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
