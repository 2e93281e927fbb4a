package retained

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// clusterWideCapacity bounds the records of cluster-wide publishers that are kept, in
// bytes, about.
const clusterWideCapacity = 8 << 20

// publisherRecords are records that only their publisher's token lets pass.
type publisherRecords struct {
	ctx     context.Context // bears the token
	token   string
	server  string
	at      time.Time
	records []record.Record
	bytes   int64
}

// ofPublisher is what a call with a publisher's token has stored; ok is false without one.
func ofPublisher(ctx context.Context, server string, at time.Time, records []record.Record) (c publisherRecords, ok bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	tokens := md.Get("authorization")
	if len(tokens) == 0 {
		return publisherRecords{}, false
	}
	c = publisherRecords{ctx: context.WithoutCancel(ctx), token: tokens[0], server: server, at: at, records: records}
	for _, r := range records {
		c.bytes += weight(r)
	}
	return c, true
}

// weight is about what a record takes in memory.
func weight(r record.Record) int64 {
	doc, err := record.AppendJSON(nil, r)
	if err != nil {
		return 1 << 10 // it was stored, so it can be encoded
	}
	return 1<<10 + int64(len(doc))
}

func bytesOf(list []publisherRecords) (n int64) {
	for _, l := range list {
		n += l.bytes
	}
	return n
}

// shedClusterWide releases what is old and what is too much, and counts the latter. The
// caller holds the lock.
func (k *Keeper) shedClusterWide(before time.Time) (dropped int) {
	n, bytes := 0, bytesOf(k.clusterWide)
	for ; n < len(k.clusterWide); n++ {
		old := k.clusterWide[n].at.Before(before)
		if !old && bytes <= clusterWideCapacity {
			break
		}
		// Of a server that is gone the token was refused until now.
		if !old || k.clusterWide[n].server != k.server {
			dropped += len(k.clusterWide[n].records)
		}
		bytes -= k.clusterWide[n].bytes
		k.clusterWide[n] = publisherRecords{}
	}
	k.clusterWide = k.clusterWide[n:]
	return dropped
}

// appendClusterWideAgain appends what cluster-wide publishers have lost, up to batch
// records of a publisher in a call. An expired token does not stop the others.
func (k *Keeper) appendClusterWideAgain(ctx context.Context) {
	k.mu.Lock()
	server := k.server
	owed := slices.DeleteFunc(slices.Clone(k.clusterWide), func(l publisherRecords) bool { return l.server == server })
	k.mu.Unlock()
	counts := map[store.AppendResult]int{}
	for len(owed) > 0 && ctx.Err() == nil {
		first, records, later := together(owed)
		results, _, err := k.queryServer(first[0].ctx, server, records)
		if err != nil {
			k.log.Warn("cluster-wide records acknowledged by another server not appended again yet, retrying", "records", len(records), "error", err)
		} else {
			k.count(results, counts)
			k.settle(first, server)
		}
		owed = later
	}
}

// together is what goes in one call with the first of a list: what the same token
// lets pass, in its order, up to a batch.
func together(list []publisherRecords) (first []publisherRecords, records []record.Record, later []publisherRecords) {
	full := false
	for _, l := range list {
		same := l.token == list[0].token
		full = full || same && len(first) > 0 && len(records)+len(l.records) > batch
		if !same || full {
			later = append(later, l)
			continue
		}
		first, records = append(first, l), append(records, l.records...)
	}
	return first, records, later
}

// settle takes down that a server has the records.
func (k *Keeper) settle(done []publisherRecords, server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.clusterWide {
		l := &k.clusterWide[i]
		if slices.ContainsFunc(done, func(d publisherRecords) bool { return len(l.records) > 0 && &l.records[0] == &d.records[0] }) {
			l.server, l.at = server, k.clock.Now()
		}
	}
}
