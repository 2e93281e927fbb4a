package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestMetricsAndReadiness(t *testing.T) {
	p := newPlace(t, "--kubernetes=false")
	p.makeStoreReachable()
	p.args = append(p.args, "--metrics-address=127.0.0.1:0")
	connector := p.start()
	if err := send(t.Context(), p.client(), event("a", 1)); err != nil {
		t.Fatal(err)
	}
	awaitStored(t, p.records(), 1)
	await(t, func() (bool, string) {
		metrics := get(t, connector.url(t, "/metrics"))
		for _, want := range []string{
			`nvsentinel_connector_events_accepted_total{strategy="PROCESS"} 1`,
			`nvsentinel_connector_events_accepted_total{strategy="PERSIST_ONLY"} 0`,
			`nvsentinel_connector_records_appended_total{result="appended"} 1`,
			`nvsentinel_connector_wal_bytes 0`, `nvsentinel_connector_wal_oldest_seconds 0`,
			`nvsentinel_connector_wal_group_records_count 1`,
		} {
			if !strings.Contains(metrics, want+"\n") {
				return false, "the metrics lack " + want
			}
		}
		return true, ""
	})
	await(t, func() (bool, string) {
		ready := get(t, connector.url(t, "/readyz"))
		return strings.Contains(ready, `"ready":true`), "readiness: " + ready
	})
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
