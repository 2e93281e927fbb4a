// Package echo tells news of one's own writes from other news, so that a room
// that has just written something does not look again because of that alone.
// Only the very version that was written is an echo; everything else is news,
// also what comes while the write is under way. A missed echo costs one look.
package echo

import "sync"

// Book remembers the last own write of each thing until it is heard of. The zero Book is empty; it
// is safe for concurrent use.
type Book struct {
	mu sync.Mutex
	// wrote is the version that the last own write of a thing made.
	wrote map[string]string
	// writing are the versions heard of while a write is under way.
	writing map[string][]string
}

// Begin says that a thing is about to be written: news of it is kept back
// until End. There is one writer of a thing at a time.
func (b *Book) Begin(thing string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writing == nil {
		b.wrote, b.writing = map[string]string{}, map[string][]string{}
	}
	delete(b.wrote, thing)
	b.writing[thing] = nil
}

// End says which version the write made; empty if it failed or nobody knows.
// With news it says that other versions were heard of meanwhile: the caller
// has to look at the thing again.
func (b *Book) End(thing, version string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	came := false
	for _, heard := range b.writing[thing] {
		came = came || heard == version
		news = news || heard != version
	}
	delete(b.writing, thing)
	if version != "" && !came {
		b.wrote[thing] = version
	}
	return news
}

// Heard says whether a version of a thing is nothing to act upon now: it is
// what was written last, or End will tell of it. An echo is expected once, and
// not any more after other news of the thing.
func (b *Book) Heard(thing, version string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, busy := b.writing[thing]; busy {
		b.writing[thing] = append(b.writing[thing], version)
		return true
	}
	echo := version != "" && b.wrote[thing] == version
	delete(b.wrote, thing)
	return echo
}
