package mongodb

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/drivertest"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// scripted is a store whose server gives the answers of a script.
func scripted(t *testing.T, registry *prometheus.Registry, answers ...bson.D) *Store {
	t.Helper()
	deployment := drivertest.NewMockDeployment()
	deployment.AddResponses(answers...)
	conf, database, err := parse("mongodb://nobody/records?retryReads=false&retryWrites=false")
	if err != nil {
		t.Fatal(err)
	}
	if err := xoptions.SetInternalClientOptions(conf, "deployment", deployment); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	s := &Store{
		Config: Config{Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Metrics: provider.NewMetrics(registry)},
		client: client, db: client.Database(database),
	}
	s.home.Store(new("here"))
	return s
}

func failure(code int32, name string) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "codeName", Value: name}, {Key: "errmsg", Value: name}}
}

// batch is an answer of a cursor without more.
func batch(collection string, docs ...any) bson.D {
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: "records." + collection}, {Key: "firstBatch", Value: append(bson.A{}, docs...)},
		{Key: "postBatchResumeToken", Value: bson.D{{Key: "_data", Value: "now"}}},
	}}}
}

func updated() bson.D {
	return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}, {Key: "nModified", Value: 1}}
}

// TestRefusedTokens: the server's refusals of a token begin a reading again
// that is counted; an election is survived behind the same token.
func TestRefusedTokens(t *testing.T) {
	old := position{Header: provider.BeginHeader("here", provider.Inserts, 0), Count: 5, Token: "old", Head: 3}
	stored := bson.D{{Key: "_id", Value: "c"}, {Key: "position", Value: provider.PositionText(old)}}
	head := batch(state, bson.D{{Key: "_id", Value: "append"}, {Key: "n", Value: int64(9)}})
	for _, tt := range []struct {
		code   int32
		name   string
		again  bool
		tokens string
	}{
		{9, "FailedToParse", true, "now"},
		{260, "InvalidResumeToken", true, "now"},
		{280, "ChangeStreamFatalError", true, "now"},
		{286, "ChangeStreamHistoryLost", true, "now"},
		{10107, "NotWritablePrimary", false, "old"},
		{189, "PrimarySteppedDown", false, "old"},
		{11600, "InterruptedAtShutdown", false, "old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			answers := []bson.D{batch(Positions, stored), head, failure(tt.code, tt.name)}
			if tt.again {
				answers = append(answers, batch(Positions, stored), batch(Events), head, batch(schemas), updated())
			} else {
				answers = append(answers, batch(Events))
			}
			s := scripted(t, registry, answers...)
			feed, err := s.Feed(t.Context(), "c", record.ProcessableHealthEventInserts())
			if err != nil {
				t.Fatal(err)
			}
			if got := feedOf(t, feed).at; got.Token != tt.tokens || (got.Scan != nil) != tt.again {
				t.Errorf("goes on at %+v, want behind token %q, reading again: %v", got, tt.tokens, tt.again)
			}
			counted := promtest.CollectAndCount(registry, "nvsentinel_store_feed_rescans_total")
			if want := map[bool]int{true: 1, false: 0}[tt.again]; counted != want {
				t.Errorf("%d rescans counted, want %d", counted, want)
			}
		})
	}
}

// TestAnEndedStreamIsNotSilence: the server ends a stream whose collection was
// dropped, renamed or restored without an error. The feed reports it, opens another
// one at the present and reads what is there.
func TestAnEndedStreamIsNotSilence(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	old := position{Header: provider.BeginHeader("here", provider.Inserts, 0), Count: 5, Token: "old", Head: 3}
	line := bson.D{{Key: "_id", Value: "c"}, {Key: "position", Value: provider.PositionText(old)}}
	head := batch(state, bson.D{{Key: "_id", Value: "append"}, {Key: "n", Value: int64(9)}})
	restored := record.Record{ID: "restored", Append: 4, CreatedAt: at, Event: record.Event{NodeName: "n", ProcessingStrategy: record.Process}}
	doc, err := encode(restored, at, at)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := scripted(t, registry,
		batch(Positions, line), head, batch(Events), // the feed opens; its cursor is closed
		batch(state, bson.D{{Key: "_id", Value: "home"}, {Key: "name", Value: "elsewhere"}}),
		batch(Positions, line), batch(Events), head, batch(schemas), updated(), batch(Events, asSent(t, doc)))
	feed, err := s.Feed(t.Context(), "c", record.ProcessableHealthEventInserts())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := feed.Next(t.Context()); !errors.Is(err, errEnded) {
		t.Fatalf("the end of the stream is %v", err)
	}
	r, position, err := feed.Next(t.Context())
	if err != nil || r.ID != "restored" || !strings.Contains(position, `"s":"elsewhere"`) || !strings.Contains(position, `"c":2`) {
		t.Errorf("after the end of the stream: %q at %s, %v", r.ID, position, err)
	}
	if n := promtest.CollectAndCount(registry, "nvsentinel_store_feed_rescans_total"); n != 1 {
		t.Errorf("%d kinds of rescans counted, want one", n)
	}
}

func feedOf(t *testing.T, f any) *feed {
	t.Helper()
	out, ok := f.(*feed)
	if !ok {
		t.Fatalf("a %T", f)
	}
	return out
}

// TestClearTextIsNoticed: an address that sends records over a network without TLS is detected.
func TestClearTextIsNoticed(t *testing.T) {
	for dsn, want := range map[string]bool{
		"mongodb://db.example.com/d":           true,
		"mongodb://db.example.com/d?tls=false": true,
		"mongodb://127.0.0.1:1,10.0.0.1/d":     true,
		"mongodb://db.example.com/d?tls=true":  false,
		"mongodb://localhost/d":                false,
		"mongodb://127.0.0.1:27018/d":          false,
		"mongodb://[::1]:27018/d":              false,
		"mongodb://%2Ftmp%2Fmongo.sock/d":      false,
	} {
		conf, _, err := parse(dsn)
		if err != nil || clearText(conf) != want {
			t.Errorf("%s: clear text over a network: %v, want %v, %v", dsn, clearText(conf), want, err)
		}
	}
}

// TestErrorsKeepSecrets: whatever is wrong with an address, no error repeats
// its password.
func TestErrorsKeepSecrets(t *testing.T) {
	for _, dsn := range []string{
		"mongodb://user:s3cr%2Ft@host:notaport/db",
		"mongodb://user:s3cr%2Ft@host/db?authMechanism=NOSUCH",
		"mongodb://user:s3cr%2Ft@host/db?tls=perhaps",
		"mongodb://user:s3cr%2Ft@/db",
		"mongodb://user:s3cr/t@host/db",
	} {
		_, _, err := parse(dsn)
		if !errors.Is(err, provider.ErrUnusable) {
			t.Errorf("%s: %v, want ErrUnusable", dsn, err)
			continue
		}
		for _, secret := range []string{"s3cr%2Ft", "s3cr/t", "s3cr"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error tells the password: %v", err)
			}
		}
	}
}
