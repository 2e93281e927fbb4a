package spool

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// BenchmarkAppend is one record of 600 bytes in each call, of many callers.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			s := benchmarked(b)
			reader, text := s.Reader("stored"), strings.Repeat("x", 500)
			var n atomic.Int64
			b.SetParallelism(callers)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					i := int(n.Add(1))
					if err := s.Append(b.Context(), []record.Record{benchRecord(i, text)}); err != nil {
						b.Error(err)
					}
					if i%1000 == 0 {
						if err := reader.Confirm(uint64(i - 999)); err != nil {
							b.Error(err)
						}
					}
				}
			})
		})
	}
}

// BenchmarkRead is a record of a batch of 256 that is read from the disk.
func BenchmarkRead(b *testing.B) {
	s := benchmarked(b)
	const records = 20 * recent
	text := strings.Repeat("x", 500)
	for i := 0; i < records; i += recent {
		batch := make([]record.Record, recent)
		for j := range batch {
			batch[j] = benchRecord(i+j, text)
		}
		if err := s.Append(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for n := 0; n < b.N; {
		for at := uint64(0); at < records-recent && n < b.N; {
			entries, upTo, err := s.Read(at, 256)
			if err != nil {
				b.Fatal(err)
			}
			at, n = upTo, n+len(entries)
		}
	}
}

func benchRecord(n int, text string) record.Record {
	r := rec(n, text)
	r.Event.RecommendedAction = record.ActionNone
	return r
}

func benchmarked(b *testing.B) *Spool {
	o := options(b.TempDir())
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}
