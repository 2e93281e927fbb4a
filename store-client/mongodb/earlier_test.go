package mongodb

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
)

// TestADatabaseOfTheEarlierOneIsRefused, with the ways out, by services and readers,
// and left as it is. One that was opened before is opened, whatever is put into it.
func TestADatabaseOfTheEarlierOneIsRefused(t *testing.T) {
	cfg := Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)}
	earlier := bson.D{
		{Key: "healthevent", Value: bson.D{{Key: "nodename", Value: "n1"}, {Key: "recommendedaction", Value: 15}, {Key: "processingstrategy", Value: 1}}},
		{Key: "healtheventstatus", Value: bson.D{{Key: "nodequarantined", Value: ""}}},
	}
	dsn := mongotest.Database(t)
	s, err := connect(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.events().InsertOne(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	_, opening := Open(t.Context(), dsn, cfg)
	_, reading := OpenReader(t.Context(), dsn, cfg)
	for _, err := range []error{opening, reading} {
		if !errors.Is(err, provider.ErrUnusable) || !strings.Contains(err.Error(), "a separate database") || !strings.Contains(err.Error(), "rename the old one") {
			t.Errorf("a database of the earlier one: %v, want both ways out", err)
		}
	}
	if err := s.goHome(t.Context()); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("the refused database was given a name: %v", err)
	}
	names, err := s.events().Indexes().ListSpecifications(t.Context())
	if err != nil || len(names) > 1 {
		t.Errorf("the refused database has indexes %v (%v)", names, err)
	}
	ours := mongotest.Database(t)
	for range 2 {
		o, err := Open(t.Context(), ours, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.events().InsertOne(t.Context(), earlier); err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMaintenancesOfTheEarlierOneAreRefused, and left as they are; services open the
// database all the same.
func TestMaintenancesOfTheEarlierOneAreRefused(t *testing.T) {
	cfg := Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(nil)}
	dsn := mongotest.Database(t)
	s, err := Open(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.db.Collection(Announced).InsertOne(t.Context(), bson.D{{Key: "eventId", Value: "arn"}, {Key: "status", Value: "DETECTED"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenMaintenances(t.Context(), dsn, cfg); !errors.Is(err, provider.ErrUnusable) || !strings.Contains(err.Error(), Announced) {
		t.Errorf("maintenances of the earlier one: %v", err)
	}
	if n, err := s.db.Collection(Announced).CountDocuments(t.Context(), bson.D{}); n != 1 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
	again, err := Open(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
