package journey

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// foreign is a name that no machine has.
func foreign(node string) string { return "not-" + node }

// badCheck is the check of every malformed event; none may ever be evaluated.
const badCheck = "JourneyMalformed"

// bad is one thing that no publisher should send.
type bad struct {
	name   string
	events []*protos.HealthEvent
	raw    []byte // sent instead of events
	want   []codes.Code
}

// malformed lists what is sent to a node's ingest endpoint.
func malformed(node string) []bad {
	event := func(change func(*protos.HealthEvent)) []*protos.HealthEvent {
		e := &protos.HealthEvent{
			Version: 1, Agent: "journey", CheckName: badCheck, ComponentClass: "GPU", NodeName: node, IsFatal: true,
			RecommendedAction: protos.RecommendedAction_RESTART_VM, GeneratedTimestamp: timestamppb.Now(),
			ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY,
			EntitiesImpacted:   []*protos.Entity{{EntityType: "GPU", EntityValue: "0"}},
		}
		change(e)
		return []*protos.HealthEvent{e}
	}
	many := make([]*protos.Entity, 1_000_000)
	for i := range many {
		many[i] = &protos.Entity{EntityType: "GPU", EntityValue: "1"}
	}
	invalid, full := []codes.Code{codes.InvalidArgument}, []codes.Code{codes.ResourceExhausted}
	return []bad{
		{"no check name", event(func(e *protos.HealthEvent) { e.CheckName = "" }), nil, invalid},
		{"no time", event(func(e *protos.HealthEvent) { e.GeneratedTimestamp = nil }), nil, invalid},
		{"an id that is none", event(func(e *protos.HealthEvent) { e.Id = "7" }), nil, invalid},
		{"a name of 4 KiB", event(func(e *protos.HealthEvent) { e.CheckName = strings.Repeat("x", 4<<10) }), nil, invalid},
		{"another node", event(func(e *protos.HealthEvent) {
			e.NodeName, e.ProcessingStrategy = foreign(node), protos.ProcessingStrategy_PROCESS
		}), nil, []codes.Code{codes.PermissionDenied}},
		{"5 MiB", event(func(e *protos.HealthEvent) { e.Message = strings.Repeat("x", 5<<20) }), nil, full},
		{"a million entities", event(func(e *protos.HealthEvent) { e.EntitiesImpacted = many }), nil, full},
		{"NUL and control characters", event(func(e *protos.HealthEvent) { e.Message = "a\x00b\x1b[31m" }), nil, nil},
		{"2,000 entities", event(func(e *protos.HealthEvent) { e.EntitiesImpacted = many[:2000] }), nil, nil},
		{"unknown action and strategy", event(func(e *protos.HealthEvent) { e.RecommendedAction, e.ProcessingStrategy = 42, 7 }), nil, nil},
		{"invalid UTF-8", nil, []byte("\x08\x01\x12\x06\x12\x04\xff\xfe\xfd\xfc"), []codes.Code{codes.Internal, codes.InvalidArgument}},
		{"no message at all", nil, []byte("\xff\xff\xff\xff\xff\xff\xff"), []codes.Code{codes.Internal, codes.InvalidArgument}},
	}
}

// disturbIngest sends everything malformed, over and over, until ctx ends, and
// returns the answers that are wrong. A connector that is away is no answer.
func (sr *scenarioRun) disturbIngest(ctx context.Context, all []bad) ([]string, error) {
	conn, err := dial(sr.fleet, sr.node)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var wrong []string
	for {
		sr.noise()
		for _, b := range all {
			call, cancel := context.WithTimeout(ctx, ingestTimeout)
			code := status.Code(b.send(call, conn))
			cancel()
			switch {
			case code == codes.Unavailable, code == codes.Canceled, code == codes.DeadlineExceeded:
			case b.want == nil && code == codes.OK, slices.Contains(b.want, code):
				sr.answered.Add(1)
			default:
				wrong = append(wrong, fmt.Sprintf("%s was answered with %s", b.name, code))
			}
		}
		if len(wrong) > 0 || !pause(ctx, loadEvery) {
			return wrong, nil
		}
	}
}

func (b bad) send(ctx context.Context, conn *grpc.ClientConn) error {
	if b.raw == nil {
		_, err := protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(ctx, &protos.HealthEvents{Version: 1, Events: b.events})
		return err
	}
	return conn.Invoke(ctx, protos.PlatformConnector_HealthEventOccurredV1_FullMethodName, b.raw, &[]byte{}, grpc.ForceCodec(bytesCodec{}))
}

// bytesCodec sends bytes as they are under the name of protobuf.
type bytesCodec struct{}

// Marshal is the identity.
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

// Unmarshal is the identity.
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = b
	return nil
}

// Name is that of the codec it stands for.
func (bytesCodec) Name() string { return "proto" }

// noise connects to the connector's socket, sends something that is not HTTP/2, and disconnects.
func (sr *scenarioRun) noise() {
	conn, err := net.Dial("unix", sr.fleet.Socket(sr.node))
	if err != nil {
		return
	}
	_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\x00\xff"))
	_ = conn.Close()
}

// wrongResults lists malformed events that were taken for more than noise.
func (sr *scenarioRun) wrongResults(ctx context.Context) ([]string, error) {
	var out []string
	for _, node := range []string{sr.node, foreign(sr.node)} {
		records, err := sr.fleet.Store.List(ctx, store.Query{Selector: record.Selector{Node: node, Agent: "journey"}})
		if err != nil {
			return nil, fmt.Errorf("reading malformed events: %w", err)
		}
		for _, r := range records {
			if node != sr.node || r.Event.CheckName == badCheck && (r.Event.ProcessingStrategy != record.PersistOnly || r.Reason() != "") {
				out = append(out, fmt.Sprintf("record %s of node %s: strategy %s, verdict %q", r.ID, node, r.Event.ProcessingStrategy, r.Reason()))
			}
		}
	}
	return out, nil
}
