package postgresql_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/pgtest"
	"github.com/nvidia/nvsentinel/store-client/postgresql"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// estate is a database as an operator sets it up: an owner that is no superuser
// but may make roles, whose services made the tables, and the account of
// append_role.sql, under a name of the test's own.
type estate struct {
	owner, appender string // addresses
	account         string
	services        store.Store
}

func newEstate(t *testing.T) estate {
	t.Helper()
	name, dsn := pgtest.Database(t)
	e := estate{account: name + "_connector"}
	server := pgtest.Shared(t)
	err := server.Exec(t.Context(), name, "CREATE ROLE "+name+"_owner LOGIN CREATEROLE; ALTER DATABASE "+name+" OWNER TO "+name+"_owner; ALTER SCHEMA public OWNER TO "+name+"_owner")
	if err != nil {
		t.Fatal(err)
	}
	e.owner, e.appender = as(t, dsn, name+"_owner"), as(t, dsn, e.account)
	e.services = storetest.Open(t, e.owner, storeopen.Options{})
	script, err := os.ReadFile("roles/append_role.sql")
	if err != nil {
		t.Fatal(err)
	}
	// It can be run again, for example after a change.
	for range 2 {
		exec(t, e.owner, strings.ReplaceAll(string(script), "nvsentinel_connector", e.account))
	}
	return e
}

// as is the address for another user.
func as(t *testing.T, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", user)
	u.RawQuery = q.Encode()
	return u.String()
}

// login is a connection of its own, without anything that ours set.
func login(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	delete(conf.RuntimeParams, "nvsentinel_allow_unsafe")
	conf.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	c, err := pgx.ConnectConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the server may have ended it
	return c
}

func exec(t *testing.T, dsn, statements string) {
	t.Helper()
	if _, err := login(t, dsn).Exec(t.Context(), statements); err != nil {
		t.Fatalf("%.200s: %v", statements, err)
	}
}

func (e estate) open(t *testing.T) store.Appender {
	t.Helper()
	a, err := storeopen.OpenAppender(t.Context(), e.appender, storeopen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestAppendAccountAppends: with it a connector stores what it stores with the
// owner's account, byte by byte.
func TestAppendAccountAppends(t *testing.T) {
	e := newEstate(t)
	a := e.open(t)
	worst := storetest.Record("n", func(r *record.Record) {
		expire := time.Date(2031, 1, 2, 3, 4, 5, 6000, time.UTC)
		r.Event.ProcessingStrategy, r.ExpireAt, r.Accepted = record.PersistOnly, &expire, strings.Repeat("ab", 32)
		r.Seq, r.SeqEpoch, r.Event.NodeName = 1<<63-1, strings.Repeat("é", 150), strings.Repeat("n", 253)
		r.Event.Metadata = map[string]string{"Weird \"key\"": "<ünï>&\n", "seq": "1", "SEQ": "2"}
		r.Event.QuarantineOverrides = &record.Override{Force: true}
		r.Event.EntitiesImpacted, r.Event.ErrorCode = nil, []string{}
	})
	records := []record.Record{storetest.Record("b"), storetest.Record("a", func(r *record.Record) { r.Event.IsHealthy = true }), worst}
	results, err := a.Append(t.Context(), records)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.AppendResult{store.Appended, store.Appended, store.Appended}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	mine, theirs := a.(store.Identified), e.services.(store.Identified)
	server, err := theirs.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, now, err := mine.AppendTo(t.Context(), "another", records); now != server || !errors.Is(err, store.ErrMoved) {
		t.Errorf("to another server: %q, %v; the services call it %q", now, err, server)
	}
	if again, now, err := mine.AppendTo(t.Context(), server, records[:1]); now != server || err != nil || again[0] != store.Duplicate {
		t.Errorf("to the server itself: %v, %q, %v", again, now, err)
	}
	for i, r := range storetest.Receive(t, feedOf(t, e.services, "c", all()), 3) {
		want := records[i]
		want.Append = r.Append
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("record %d (-want +got):\n%s", i, diff)
		}
	}
	// The same through the owner: the rows differ in their places and times only.
	other := newEstate(t)
	storetest.MustAppend(t, other.services, records...)
	if diff := cmp.Diff(tableOf(t, other.owner), tableOf(t, e.owner)); diff != "" {
		t.Errorf("rows (-owner's +appender's):\n%s", diff)
	}
	changed := records[0]
	changed.Event.Message = "another"
	again, err := a.Append(t.Context(), []record.Record{changed, records[1], storetest.Record("c"), records[1]})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]store.AppendResult{store.Refused, store.Duplicate, store.Appended, store.Duplicate}, again); diff != "" {
		t.Errorf("results of a second append (-want +got):\n%s", diff)
	}
}

// TestAppendAccountKeepsDeadLetters of each node, and of nobody else.
func TestAppendAccountKeepsDeadLetters(t *testing.T) {
	e := newEstate(t)
	a := e.open(t)
	for _, source := range []string{"platform-connectors/gpu-7", "platform-connectors"} {
		if err := a.Dead(t.Context(), store.DeadLetter{ID: "1", Source: source, Reason: "why", Body: []byte("{}")}); err != nil {
			t.Errorf("a letter of %q: %v", source, err)
		}
	}
	letters, err := e.services.DeadLetters(t.Context(), store.Connectors)
	if err != nil || len(letters) != 2 || letters[0].ID != "1" || letters[1].ID != "gpu-7/1" {
		t.Errorf("%+v, %v", letters, err)
	}
	if err := a.Dead(t.Context(), store.DeadLetter{ID: "1", Source: "fault-quarantine: killed by a record", Reason: "why"}); err == nil {
		t.Error("a letter of a service is kept")
	}
}

// tableOf is the table as text, without what differs from one append to another.
func tableOf(t *testing.T, dsn string) []string {
	t.Helper()
	found, err := login(t, dsn).Query(t.Context(), `SELECT ((to_jsonb(h) - '{append_seq,insert_tx,stored_at,change_tx,change_seq,changed_at}'::text[]) #- '{doc,append}')::text
FROM health_events AS h ORDER BY append_seq LIMIT 3`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAppendAccountIsRefused tries what somebody with that account would try. The
// database refuses it, and what is stored stays as it is.
func TestAppendAccountIsRefused(t *testing.T) {
	e := newEstate(t)
	r := storetest.Record("victim")
	storetest.MustAppend(t, e.services, r)
	storetest.Receive(t, feedOf(t, e.services, "c", all()), 1)
	before := tableOf(t, e.owner)
	owner := strings.TrimSuffix(e.account, "_connector") + "_owner"
	fill := strings.NewReplacer("$owner", owner, "$me", e.account, "$id", r.ID)
	for _, attack := range []string{
		"UPDATE health_events SET doc = doc", "UPDATE health_events SET verdict = 'Matched' WHERE id = '$id'",
		"DELETE FROM health_events", "TRUNCATE health_events", "DROP TABLE health_events", "ALTER TABLE health_events ADD COLUMN x INT",
		"ALTER TABLE health_events DISABLE TRIGGER ALL", "ALTER TABLE health_events OWNER TO $me",
		"INSERT INTO health_events SELECT * FROM health_events", "INSERT INTO health_events (id) VALUES ('x')",
		"INSERT INTO health_events (id) VALUES ('$id') ON CONFLICT (id) DO UPDATE SET verdict = 'Matched'",
		"MERGE INTO health_events AS h USING (SELECT 1) AS x ON true WHEN MATCHED THEN DELETE",
		"SELECT * FROM health_events", "SELECT id FROM health_events", "SELECT count(*) FROM health_events", "SELECT digest FROM health_events WHERE id = '$id'",
		"SELECT doc FROM health_events WHERE node = 'victim' FOR UPDATE", "TABLE feed_positions", "SELECT position FROM feed_positions",
		"UPDATE feed_positions SET position = ''", "DELETE FROM feed_positions", "INSERT INTO feed_positions VALUES ('fault-quarantine', '', NULL, now())",
		"SELECT * FROM dead_letters", "DELETE FROM dead_letters", "INSERT INTO dead_letters VALUES ('a', 'b', 'c', NULL, now())",
		"SELECT * FROM store_home", "UPDATE store_home SET home = 'x'", "SELECT * FROM store_schema", "INSERT INTO store_schema VALUES (99)",
		"COPY health_events TO STDOUT", "COPY health_events FROM STDIN", "COPY (SELECT 1) TO PROGRAM 'id'", "COPY health_events TO '/tmp/x'",
		"BEGIN; LOCK TABLE health_events IN ACCESS EXCLUSIVE MODE", "BEGIN; LOCK TABLE health_events IN ACCESS SHARE MODE", "BEGIN; LOCK TABLE feed_positions",
		"SELECT nextval('health_event_places')", "SELECT setval('health_event_places', 1)", "SELECT last_value FROM health_event_places", "ALTER SEQUENCE health_event_places RESTART",
		"CREATE TABLE x (y INT)", "CREATE TABLE public.health_events2 (y INT)", "CREATE TEMPORARY TABLE health_events (id TEXT)", "CREATE SCHEMA x", "CREATE VIEW x AS SELECT 1",
		"CREATE FUNCTION x() RETURNS INT LANGUAGE sql AS 'SELECT 1'", "CREATE OR REPLACE FUNCTION health_event_problem(doc JSONB) RETURNS TEXT LANGUAGE sql AS 'SELECT NULL'",
		"ALTER FUNCTION append_health_events(TEXT[], TEXT[]) SECURITY INVOKER", "DROP FUNCTION append_health_events(TEXT[], TEXT[])",
		"ALTER FUNCTION append_health_events(TEXT[], TEXT[]) RESET search_path", "GRANT EXECUTE ON FUNCTION health_event_problem(JSONB) TO $me",
		"CREATE TRIGGER x BEFORE INSERT ON health_events FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()", "CREATE RULE x AS ON INSERT TO health_events DO INSTEAD NOTHING",
		"CREATE INDEX x ON health_events (id)", "DROP INDEX health_events_open", "CREATE PUBLICATION x FOR TABLE health_events", "CREATE EXTENSION dblink", "CREATE DATABASE x",
		"CREATE ROLE x SUPERUSER", "ALTER ROLE $me SUPERUSER", "ALTER ROLE $me CREATEDB", "ALTER ROLE $owner PASSWORD 'x'", "DROP ROLE $owner", "GRANT $owner TO $me", "SET ROLE $owner", "SET SESSION AUTHORIZATION $owner",
		"SET session_replication_role = replica", "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "SELECT pg_read_file('/etc/passwd')", "SELECT lo_import('/etc/passwd')",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '$owner'", "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'x'", "SELECT pg_switch_wal()", "SELECT pg_create_logical_replication_slot('x', 'test_decoding')",
	} {
		t.Run(attack, func(t *testing.T) {
			_, err := login(t, e.appender).Exec(t.Context(), fill.Replace(attack))
			refusal, ok := errors.AsType[*pgconn.PgError](err)
			// Insufficient privilege; or, for a prepared transaction, none is admitted.
			if !ok || refusal.Code != "42501" && refusal.Code != "55000" {
				t.Errorf("the database answered %v, want a refusal", err)
			}
		})
	}
	if diff := cmp.Diff(before, tableOf(t, e.owner)); diff != "" {
		t.Errorf("what was stored has changed:\n%s", diff)
	}
	if _, err := e.open(t).Append(t.Context(), []record.Record{storetest.Record("n")}); err != nil {
		t.Errorf("appending after the attacks: %v", err)
	}
}

// TestAppendedDocumentsAreChecked hands over documents by hand that a connector
// would not make.
func TestAppendedDocumentsAreChecked(t *testing.T) {
	e := newEstate(t)
	me := login(t, e.appender)
	r := storetest.Record("n", func(r *record.Record) { r.Event.QuarantineOverrides = &record.Override{Skip: true} })
	b, err := record.AppendJSON(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []struct{ name, old, new string }{
		{"a verdict", `"quarantineverdict":null`, `"quarantineverdict":{"reason":"NoRuleMatched","effects":{"cordon":false},"at":"2026-01-02T03:04:05Z"}`},
		{"an empty verdict", `"quarantineverdict":null`, `"quarantineverdict":{}`},
		{"quarantined", `"nodequarantined":null`, `"nodequarantined":"Quarantined"`},
		{"a session", `"session":""`, `"session":"x"`},
		{"faults", `"faults":null`, `"faults":[]`},
		{"a repair", `"remediation":null`, `"remediation":{}`},
		{"remediated", `"faultremediated":null`, `"faultremediated":false`},
		{"drained", `"userpodsevictionstatus":{"status":""`, `"userpodsevictionstatus":{"status":"Succeeded"`},
		{"a second status in other letters", `"healtheventstatus":`, `"HealthEventStatus":{"session":"x"},"healtheventstatus":`},
		{"a second event in other letters", `"healthevent":`, `"Healthevent":{"nodename":"victim"},"healthevent":`},
		{"a second node in other letters", `"nodename":`, `"NodeName":"victim","nodename":`},
		{"a name with a letter that folds to s", `"session":""`, `"ſession":"x","session":""`},
		{"a second session in other letters", `"session":""`, `"SESSION":"x","session":""`},
		{"no status", `"healtheventstatus"`, `"other"`},
		{"a revision", `"revision":0`, `"revision":7`},
		{"a time that is none", `"createdAt":"2026-01-02`, `"createdAt":"2026-13-02`},
		{"a time in words", `"createdAt":"2026-01-02T03:04:05.000678Z"`, `"createdAt":"yesterday"`},
		{"an endless time", `"generatedtimestamp":"2026-01-02T03:04:05Z"`, `"generatedtimestamp":"infinity"`},
		{"an expiry of a record that acts", `"expireAt":null`, `"expireAt":"2020-01-02T03:04:05Z"`},
		{"a node that is a number", `"nodename":"n"`, `"nodename":7`},
		{"no node", `"nodename":"n"`, `"nodename":""`},
		{"a code that is a number", `"errorcode":["79"]`, `"errorcode":[79]`},
		{"an entity that is a text", `"entitiesimpacted":[`, `"entitiesimpacted":["x",`},
		{"metadata that is a list", `"metadata":null`, `"metadata":[]`},
		{"metadata with a number", `"metadata":null`, `"metadata":{"a":1}`},
		{"a counter with a sign", `"seq":0`, `"seq":-1`},
		{"a counter with a fraction", `"seq":0`, `"seq":1.0`},
		{"a counter that is too large", `"seq":0`, `"seq":18446744073709551616`},
		{"an override with a word", `"skip":true`, `"skip":"yes"`},
		{"an unknown strategy", `"PROCESS"`, `"LATER"`},
		{"a machine that is a number", `"bootid":""`, `"bootid":1`},
		{"no JSON", `{"id"`, `"id"`},
	} {
		t.Run(forged.name, func(t *testing.T) {
			doc := strings.Replace(string(b), forged.old, forged.new, 1)
			if doc == string(b) {
				t.Fatalf("%s is not in %s", forged.old, b)
			}
			_, err := me.Exec(t.Context(), "SELECT append_health_events($1, $2)", []string{doc}, []string{record.Content(r)})
			if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
				t.Errorf("the database answered %v, want a refusal", err)
			}
		})
	}
	for name, call := range map[string]string{
		"a digest that is none":     fmt.Sprintf("SELECT append_health_events(ARRAY['%s'], ARRAY['x'])", b),
		"no digest":                 fmt.Sprintf("SELECT append_health_events(ARRAY['%s'], ARRAY[]::text[])", b),
		"nothing":                   "SELECT append_health_events(ARRAY[NULL], ARRAY[NULL])",
		"somebody else's letter":    "SELECT keep_dead_letter('fault-quarantine', 'x', 'y', '')",
		"a letter without an id":    "SELECT keep_dead_letter('platform-connectors', '', 'y', '')",
		"a letter without anything": "SELECT keep_dead_letter(NULL, NULL, NULL, NULL)",
	} {
		if _, err := me.Exec(t.Context(), call); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if got := tableOf(t, e.owner); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
	// Place, revision, transaction and time are the store's; a date in the future
	// becomes the present.
	doc := strings.NewReplacer(`"append":0`, `"append":-5`, `"createdAt":"2026`, `"createdAt":"9026`).Replace(string(b))
	if _, err := me.Exec(t.Context(), "SELECT append_health_events($1, $2)", []string{doc}, []string{record.Content(r)}); err != nil {
		t.Fatal(err)
	}
	got := storetest.Receive(t, feedOf(t, e.services, "c", all()), 1)[0]
	if got.Append <= 0 || got.CreatedAt.Year() > 9000 {
		t.Errorf("stored at place %d, created at %s", got.Append, got.CreatedAt)
	}
}

// TestAppendAccountHoldsNothing: a transaction that holds the feeds back, and the
// lock under which the schema is made, are taken from the account; services start
// meanwhile.
func TestAppendAccountHoldsNothing(t *testing.T) {
	e := newEstate(t)
	clk := testkit.NewClock()
	// A feed has a listener, and with it the look for such sessions.
	feedOf(t, storetest.Open(t, e.owner, storeopen.Options{Clock: clk}), "watch", all())
	me := login(t, e.appender)
	if _, err := me.Exec(t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", postgresql.SchemaLock)); err != nil {
		t.Fatal(err)
	}
	storetest.Open(t, e.owner, storeopen.Options{})
	testkit.Until(t, 2*time.Minute, func() bool {
		clk.Step(time.Minute)
		return me.Ping(t.Context()) != nil
	})

	me = login(t, e.appender)
	if _, err := me.Exec(t.Context(), "SET idle_in_transaction_session_timeout = 0; BEGIN; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	if n, err := postgresql.Strays(t.Context(), raw(t, e.owner), time.Hour); n != 0 || err != nil {
		t.Errorf("%d sessions of an hour were ended, %v", n, err)
	}
	if n, err := postgresql.Strays(t.Context(), raw(t, e.owner), 0); n != 1 || err != nil {
		t.Errorf("%d sessions were ended, %v; want the one with the open transaction", n, err)
	}
	testkit.Until(t, 2*time.Minute, func() bool { return me.Ping(t.Context()) != nil })
}
