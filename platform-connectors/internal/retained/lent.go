package retained

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// lentRoom bounds the records of cluster-wide publishers that are kept, in bytes,
// about.
const lentCapacity = 8 << 20

// lent are records that only their publisher's token lets pass.
type lent struct {
	ctx     context.Context // bears the token
	token   string
	server  string
	at      time.Time
	records []record.Record
	bytes   int64
}

// lend is what a call with a publisher's token has stored; ok is false without one.
func lend(ctx context.Context, server string, at time.Time, records []record.Record) (l lent, ok bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	tokens := md.Get("authorization")
	if len(tokens) == 0 {
		return lent{}, false
	}
	l = lent{ctx: context.WithoutCancel(ctx), token: tokens[0], server: server, at: at, records: records}
	for _, r := range records {
		l.bytes += weight(r)
	}
	return l, true
}

// weight is about what a record takes in memory.
func weight(r record.Record) int64 {
	doc, err := record.AppendJSON(nil, r)
	if err != nil {
		return 1 << 10 // it was stored, so it can be encoded
	}
	return 1<<10 + int64(len(doc))
}

func lentBytes(list []lent) (n int64) {
	for _, l := range list {
		n += l.bytes
	}
	return n
}

// returnLent lets go what is old and what is too much, and counts the latter. The
// caller holds the lock.
func (k *Keeper) returnLent(before time.Time) (dropped int) {
	n, bytes := 0, lentBytes(k.lent)
	for ; n < len(k.lent); n++ {
		old := k.lent[n].at.Before(before)
		if !old && bytes <= lentCapacity {
			break
		}
		// Of a server that is gone the token was refused until now.
		if !old || k.lent[n].server != k.server {
			dropped += len(k.lent[n].records)
		}
		bytes -= k.lent[n].bytes
		k.lent[n] = lent{}
	}
	k.lent = k.lent[n:]
	return dropped
}

// lendAgain appends what cluster-wide publishers have lost: of each as much at once
// as goes, as batch says. A token that is good no more stops nobody else.
func (k *Keeper) lendAgain(ctx context.Context) {
	k.mu.Lock()
	server := k.server
	owed := slices.DeleteFunc(slices.Clone(k.lent), func(l lent) bool { return l.server == server })
	k.mu.Unlock()
	counts := map[store.AppendResult]int{}
	for len(owed) > 0 && ctx.Err() == nil {
		first, records, later := together(owed)
		results, _, err := k.ask(first[0].ctx, server, records)
		if err != nil {
			k.log.Warn("records of a cluster-wide publisher that another server had acknowledged are not appended again yet", "records", len(records), "error", err)
		} else {
			k.count(results, counts)
			k.settle(first, server)
		}
		owed = later
	}
}

// together is what goes in one call with the first of a list: what the same token
// lets pass, in its order, up to a batch.
func together(list []lent) (first []lent, records []record.Record, later []lent) {
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
func (k *Keeper) settle(done []lent, server string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.lent {
		l := &k.lent[i]
		if slices.ContainsFunc(done, func(d lent) bool { return len(l.records) > 0 && &l.records[0] == &d.records[0] }) {
			l.server, l.at = server, k.clock.Now()
		}
	}
}
