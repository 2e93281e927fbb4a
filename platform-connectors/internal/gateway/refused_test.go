package gateway_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestRejectedCallers: no call of theirs is read, and nothing is stored or answered.
func TestRejectedCallers(t *testing.T) {
	h := newHall(t)
	api := protos.NewGatewayClient(h.bare())
	theirs := storetest.Record("gpu-7")
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{theirs}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		code codes.Code
	}{
		"no token":                       {t.Context(), codes.Unauthenticated},
		"an empty token":                 {bearing(t, "authorization", ""), codes.Unauthenticated},
		"two tokens":                     {bearing(t, "authorization", of("gpu-7"), "authorization", of("gpu-8")), codes.Unauthenticated},
		"an expired token":               {bearing(t, "authorization", "expired~"+connectors+"~gpu-7"), codes.Unauthenticated},
		"a token for the connector":      {bearing(t, "authorization", token(authn.Audience, connectors, "gpu-7")), codes.Unauthenticated},
		"a token for the API server":     {bearing(t, "authorization", token("https://kubernetes.default.svc", connectors, "gpu-7")), codes.Unauthenticated},
		"another account of its node":    {bearing(t, "authorization", token(gateway.Audience, "system:serviceaccount:default:train", "gpu-7")), codes.PermissionDenied},
		"the account in other namespace": {bearing(t, "authorization", token(gateway.Audience, "system:serviceaccount:default:platform-connectors", "gpu-7")), codes.PermissionDenied},
		"a token of no pod":              {bearing(t, "authorization", token(gateway.Audience, connectors, "")), codes.PermissionDenied},
		"a token of 20 KiB":              {bearing(t, "authorization", strings.Repeat("x", 20<<10)), codes.Unauthenticated},
	} {
		for call, err := range map[string]error{
			"append":  second(api.Append(tc.ctx, &protos.AppendRequest{Records: [][]byte{doc(t, storetest.Record("gpu-7"))}})),
			"dead":    second(api.Dead(tc.ctx, &protos.DeadRequest{Id: "x"})),
			"history": second(api.History(tc.ctx, &protos.HistoryRequest{})),
		} {
			// An address whose token was refused has to wait.
			if code := status.Code(err); code != tc.code && (tc.code != codes.Unauthenticated || code != codes.ResourceExhausted) {
				t.Errorf("%s, %s: %v, want %s", name, call, err, tc.code)
			}
		}
		h.gateway.Callers.Forgive()
	}
	if all := h.stored(); len(all) != 1 || all[0].ID != theirs.ID {
		t.Errorf("stored: %d records", len(all))
	}
}

func second[T any](_ T, err error) error { return err }

// TestForgedRecords: a connector in an attacker's hands brings documents that no
// connector makes.
func TestForgedRecords(t *testing.T) {
	h := newHall(t)
	theirs := storetest.Record("gpu-8")
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{theirs}); err != nil {
		t.Fatal(err)
	}
	api := protos.NewGatewayClient(h.bare())
	mine := string(doc(t, storetest.Record("gpu-7")))
	for name, forged := range map[string]string{
		"another node":                  strings.Replace(mine, `"nodename":"gpu-7"`, `"nodename":"gpu-8"`, 1),
		"another node in other letters": strings.Replace(mine, `"nodename":"gpu-7"`, `"nodename":"gpu-7","NodeName":"gpu-8"`, 1),
		"a verdict":                     strings.Replace(mine, `"quarantineverdict":null`, `"quarantineverdict":{"reason":"NoRuleMatched"}`, 1),
		"a second status":               strings.Replace(mine, `,"expireAt"`, `,"HEALTHEVENTSTATUS":{"session":"x"},"expireAt"`, 1),
		"a byte that is no text":        strings.Replace(mine, "XID 79", "XID \x00\xff", 1),
		"no document":                   "{",
		"nothing":                       "",
		"null":                          "null",
		"nesting without an end":        strings.Repeat("[", 1<<20),
	} {
		reply, err := api.Append(bearing(t, "authorization", of("gpu-7")), &protos.AppendRequest{Records: [][]byte{[]byte(forged)}})
		if err != nil || reply.GetResults()[0].GetOutcome() != protos.Outcome_OUTCOME_REFUSED {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
	all := h.stored()
	if len(all) != 1 || all[0].Event.NodeName != "gpu-8" || !all[0].Status.Blank() {
		t.Errorf("stored: %+v", all)
	}
	for name, q := range map[string]*protos.AppendRequest{
		"17 MiB":       {Records: [][]byte{make([]byte, 17<<20)}},
		"5000 records": {Records: make([][]byte, 5000)},
	} {
		if _, err := api.Append(bearing(t, "authorization", of("gpu-7")), q); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A record under the id of another node's is one of its own node alone.
	stolen := storetest.Record("gpu-7", func(r *record.Record) { r.ID, r.Event.ID = theirs.ID, theirs.ID })
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{stolen}); err != nil {
		t.Error(err)
	}
	for _, r := range h.stored() {
		if of := r.Event.NodeName; (of == "gpu-8") != (r.ID == theirs.ID) || of == "gpu-7" && r.ID != record.Alias(of, theirs.ID) {
			t.Errorf("node %s has a record %s", of, r.ID)
		}
	}
	// Another node goes on all the same.
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Error(err)
	}
}
