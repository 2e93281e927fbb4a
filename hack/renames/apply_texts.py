#!/usr/bin/env python3
"""apply_texts.py <worktree> [--tables DIR] [--report FILE] [--all-commands]

Applies messages-a.tsv, messages-b.tsv and help.tsv (old literal -> new literal, in its file, nearest to its
line), then carries the same texts over to tests, golden files, docs and chart. Safe to run twice. Rows of
NEEDS_CODE are left alone unless --all-commands: there the code has to change by hand, not the text alone.
"""
import argparse, collections, difflib, os, re, subprocess, sys

ap = argparse.ArgumentParser()
ap.add_argument('worktree')
ap.add_argument('--tables', default=os.path.dirname(os.path.abspath(__file__)))
ap.add_argument('--report', default='')
ap.add_argument('--all-commands', action='store_true')
A = ap.parse_args()
ROOT = A.worktree.rstrip('/') + '/'
if os.path.realpath(ROOT) == '.' and not os.environ.get('APPLY_TEXTS_LANG'):
    sys.exit('refused: . itself (set APPLY_TEXTS_LANG=1 to apply there)')

# The one command of two verbs becomes two commands: hand work.
NEEDS_CODE = {('cli/internal/command/brake.go', 'brake on|off'),
              ('cli/internal/command/brake.go', '  nvsentinel brake on --reason \\"wrong firmware catalogue\\"\\n  nvsentinel brake off --reason \\"catalogue mended\\"')}
# Files that are never changed: the predecessor's names, history, modules.
# Generated from other places than these texts: CRDs, the schema, the list of pages. Dashboards say it in prose.
LEAVE = re.compile(r'^(CHANGELOG\.md|LICENSE|go\.(mod|sum|work)|.*/go\.(mod|sum)|cli/convert/names\.yaml|tests/reasons/|hack/renames/|docs/contributing/|'
                   r'docs/llms\.txt|docs/reference/(crds|metrics|predecessor-names|failure-isolation|alerts|benchmarks)\.md|'
                   r'distros/helm/nvsentinel/(.*crds/|values\.schema\.json|dashboards/|alerts\.yaml|Chart\.yaml)|.*\.(png|svg|gz|pb\.go|sum))')

VERB = re.compile(r'%(?:\[\d+\])?[-+# 0]*[\d*]*(?:\.[\d*]+)?(?:\[\d+\])?[a-zA-Z]')
DISTINCT, WIDE = 12, 20
out = collections.defaultdict(list)


def lits(t):
    """Spans of the string literals of a Go file, quotes included."""
    res, i, n = [], 0, len(t)
    rune = re.compile(r"'(?:\\.[^']*|[^\\'])'")
    while i < n:
        c = t[i]
        if c == '/' and t[i + 1:i + 2] == '/':
            j = t.find('\n', i)
            i = n if j < 0 else j
        elif c == '/' and t[i + 1:i + 2] == '*':
            i = t.find('*/', i) + 2
        elif c == '"':
            j = i + 1
            while t[j] != '"':
                j += 2 if t[j] == '\\' else 1
            res.append((i, j + 1))
            i = j + 1
        elif c == '`':
            j = t.find('`', i + 1)
            res.append((i, j + 1))
            i = j + 1
        elif c == "'":
            m = rune.match(t, i)
            i = m.end() if m else i + 1
        else:
            i += 1
    return res


ESC = {'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '"': '"', "'": "'"}


def unesc(s):
    return re.sub(r'\\(.)', lambda m: ESC.get(m.group(1), m.group(0)), s)


def goesc(s):
    return s.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n').replace('\t', '\\t')


def read(p):
    with open(ROOT + p, encoding='utf-8') as f:
        return f.read()


class Row:
    __slots__ = ('src', 'n', 'path', 'line', 'kind', 'old', 'new', 'files', 'raw', 'state')


rows = []
for name in ('help.tsv', 'messages-a.tsv', 'messages-b.tsv'):
    for n, l in enumerate(open(f'{A.tables}/{name}', encoding='utf-8').read().split('\n')[1:], 2):
        if not l:
            continue
        c = l.split('\t')
        r = Row()
        r.src, r.n, r.state, r.files = name, n, '', set()
        if name == 'help.tsv':
            p, ln = c[1].rsplit(':', 1)
            r.path, r.line, r.kind, o, w = p, int(ln), c[2], c[3], c[4]
            if not o:
                continue
            un = lambda s: re.sub(r'\\([nt\\])', lambda m: ESC[m.group(1)], s)
            o, w = un(o), un(w)
            r.raw = not p.endswith('.go')
            r.old, r.new = (o, w) if r.raw else (goesc(o), goesc(w))
        else:
            r.path, r.line, r.kind, r.old, r.new = c[0], int(c[1]), c[2], c[3], c[4]
            r.files = set(c[5].split())
            r.raw = not r.path.endswith('.go')
        a, b = VERB.findall(r.old.replace('%%', '')), VERB.findall(r.new.replace('%%', ''))
        if a != b:
            out['verbs differ (row left out)'].append(f'{name}:{n} {a} {b} {r.old}')
            continue
        if (r.path, r.old) in NEEDS_CODE and not A.all_commands:
            r.state = 'code'
            out['needs code by hand'].append(f'{r.path}:{r.line} {r.old} -> {r.new}')
            continue
        rows.append(r)
other = collections.defaultdict(set)
for l in open(f'{A.tables}/messages-a-other.tsv', encoding='utf-8').read().split('\n'):
    c = l.split('\t')
    if len(c) == 4:
        other[c[0], c[2]] |= set(c[3].split())
for r in rows:
    r.files |= other.get((r.path, r.old), set())

# ---- 1. the rows in their own files ---------------------------------------------------------------------------
written = {}


def candidates(t, r):
    """Spans of what is replaced for a row, with the text that goes there, best form first."""
    if r.raw:
        got = [(m.start(), m.end(), r.new) for m in re.finditer(re.escape(r.old), t)]
        whole = [g for g in got if (g[0] == 0 or t[g[0] - 1] == '\n') and t[g[1]:g[1] + 1] in ('\n', '')]
        return whole or got
    ls = lits(t)
    uo, un = unesc(r.old), unesc(r.new)
    got = [(a + 1, b - 1, r.new if t[a] == '"' else un) for a, b in ls
           if (t[a + 1:b - 1] == r.old if t[a] == '"' else t[a + 1:b - 1] == uo)]
    if got:
        return got
    for a, b in ls:  # a struct tag, or a part of a longer literal
        body = t[a + 1:b - 1]
        if t[a] == '`':
            for m in re.finditer(r':"' + re.escape(r.old) + '"', body):
                got.append((a + 1 + m.start() + 2, a + m.end(), r.new))
    if got:
        return got
    for a, b in ls:
        body, o, w = t[a + 1:b - 1], (r.old if t[a] == '"' else uo), (r.new if t[a] == '"' else un)
        k = body.find(o)
        while k >= 0:
            got.append((a + 1 + k, a + 1 + k + len(o), w))
            k = body.find(o, k + 1)
    return got


by_file = collections.defaultdict(list)
for r in rows:
    by_file[r.path].append(r)
for p in sorted(by_file):
    if not os.path.exists(ROOT + p):
        for r in by_file[p]:
            r.state = 'missing'
            out['file is gone'].append(f'{r.src}:{r.n} {p}')
        continue
    t = read(p)
    lineof = lambda k: t.count('\n', 0, k) + 1
    claimed, edits = [], []
    free = lambda a, b: not any(x < b and a < y for x, y in claimed)
    for src in (('help.tsv',), ('messages-a.tsv', 'messages-b.tsv')):
        groups = collections.OrderedDict()
        for r in by_file[p]:
            if r.src in src:
                groups.setdefault(r.old, []).append(r)
        for old, rs in groups.items():
            allc = candidates(t, rs[0])
            cs = [c for c in allc if free(c[0], c[1])]
            if not cs:
                for r in rs:
                    if allc:
                        r.state = 'superseded'
                        out['superseded by help.tsv'].append(f'{r.src}:{r.n} {p}:{r.line} {old[:90]}')
                    elif candidates(t, type('R', (), dict(old=r.new, new=r.new, raw=r.raw))):
                        r.state = 'already'
                    else:
                        r.state = 'notfound'
                        out['not found'].append(f'{r.src}:{r.n} {p}:{r.line} {old[:100]}')
                continue
            # done in an earlier run: what is "old" inside an applied new text
            if old in rs[0].new and not any(t[c[0]:c[1]] == old and (t[c[0] - 1] in '"`') for c in cs):
                cs = [c for c in cs if rs[0].new not in t[max(0, c[0] - len(rs[0].new)):c[1] + len(rs[0].new)]]
                if not cs:
                    for r in rs:
                        r.state = 'already'
                    continue
            if len(cs) == len(rs):
                pairs = list(zip(sorted(rs, key=lambda r: r.line), sorted(cs)))
            else:
                pairs, left = [], list(cs)
                same = len({r.new for r in rs}) == 1
                for r in rs:
                    if not left:
                        r.state = 'already'
                        continue
                    left.sort(key=lambda c: abs(lineof(c[0]) - r.line))
                    c = left.pop(0)
                    d = abs(lineof(c[0]) - r.line)
                    if d and not same:
                        out['ambiguous (nearest taken)'].append(f'{r.src}:{r.n} {p}:{r.line} {len(cs)} places, {len(rs)} rows: {old[:80]}')
                    pairs.append((r, c))
                if left:
                    out['same literal elsewhere in the file, no row (left)'].append(
                        f'{rs[0].src}:{rs[0].n} {p}:{",".join(str(lineof(c[0])) for c in left)} {old[:80]}')
            for r, c in pairs:
                new = c[2] if len({x.new for x in rs}) == 1 else (r.new if t[c[0] - 1] != '`' else unesc(r.new))
                if '`' in new and t[c[0] - 1] == '`':
                    out['backquote in a raw literal (left out)'].append(f'{r.src}:{r.n}')
                    continue
                claimed.append((c[0], c[1]))
                edits.append((c[0], c[1], new))
                r.state = 'applied'
    if edits:
        for a, b, w in sorted(edits, reverse=True):
            t = t[:a] + w + t[b:]
        with open(ROOT + p, 'w', encoding='utf-8') as f:
            f.write(t)
        written[p] = len(edits)

# ---- 2. the same texts elsewhere ------------------------------------------------------------------------------
EDGE = ' :;,.()'


def split(s):
    """Fixed parts and verbs of a literal."""
    parts, verbs, k = [], [], 0
    for m in VERB.finditer(s):
        if s[max(0, m.start() - 1):m.start()] == '%' or s[m.start():m.start() + 2] == '%%':
            continue
        parts.append(s[k:m.start()])
        verbs.append(m.group(0))
        k = m.end()
    return parts + [s[k:]], verbs


class Pattern:
    def __init__(self, old, new, rowlist):
        self.rows = rowlist
        self.files = set().union(*(r.files for r in rowlist))
        self.old, self.new = old, new
        po, vo = split(old)
        pn, vn = split(new)
        self.verbs = vo
        if rowlist[0].src != 'help.tsv' and len(po) == len(pn):
            pass
        # ends that are equal are no part of the match: tests leave them out
        for i, side in ((0, 0), (len(po) - 1, 1)):
            a, b = po[i], pn[i]
            while a and b and len(a) > 1 and a[-1 if side else 0] == b[-1 if side else 0] and a[-1 if side else 0] in EDGE:
                a, b = (a[:-1], b[:-1]) if side else (a[1:], b[1:])
            if side and a.endswith('\\n') and b.endswith('\\n'):
                a, b = a[:-2], b[:-2]
            po[i], pn[i] = a, b
        self.po, self.pn = po, pn
        self.anchor = max(range(len(po)), key=lambda i: len(po[i]))
        self.key = po[self.anchor]
        self.size = sum(map(len, po))

    def matches(self, t):
        """Lists of edits (start, end, new) for each place where the whole pattern is."""
        po, pn, a = self.po, self.pn, self.anchor
        k = t.find(self.key)
        while k >= 0:
            spans = {a: (k, k + len(self.key))}
            ok, pos = True, k + len(self.key)
            last = max(i for i, p in enumerate(po) if p)
            for i in range(a + 1, last + 1):
                if not po[i]:
                    continue
                j = t.find(po[i], pos)
                gap = t[pos:j] if j >= 0 else ''
                if j < 0 or len(gap) > 300 or '\n' in gap or not self.fits(gap, i - 1):
                    ok = False
                    break
                spans[i] = (j, j + len(po[i]))
                pos = j + len(po[i])
            pos = k
            if ok:
                for i in range(a - 1, -1, -1):
                    if not po[i]:
                        continue
                    j = t.rfind(po[i], max(0, pos - 300 - len(po[i])), pos)
                    gap = t[j + len(po[i]):pos] if j >= 0 else ''
                    if j < 0 or '\n' in gap or not self.fits(gap, i):
                        ok = False
                        break
                    spans[i] = (j, j + len(po[i]))
                    pos = j
            if ok:
                first, end = min(s for s, _ in spans.values()), max(e for _, e in spans.values())
                f, l = min(spans), max(spans)
                if f == 0 and po[0][:1].isalnum() and t[first - 1:first].isalnum() and not self.escaped(t, first):
                    ok = False
                if l == len(po) - 1 and po[-1][-1:].isalnum() and t[end:end + 1].isalnum():
                    ok = False
            if ok:
                edits = [(s, e, pn[i]) for i, (s, e) in spans.items() if po[i] != pn[i]]
                edits = [x for x in edits if not self.done(t, x)]
                # verbs with nothing between in old but text in new, at the edge or between two verbs
                if all(bool(po[i]) or not pn[i] for i in range(len(po))):
                    yield edits
                else:
                    out['text where old has none (by hand)'].append(f'{self.old[:90]}')
            k = t.find(self.key, k + 1)

    def escaped(self, t, k):
        return t[k - 2:k] in ('\\n', '\\t')

    def fits(self, gap, i):
        v = self.verbs[i] if i < len(self.verbs) else '%s'
        if v[-1] == 'd' and not v.startswith('%['):
            return bool(re.fullmatch(r'-?\d+|%d|["`+ \w.()\[\]-]{1,60}|<[a-z ]+>|[…]|\.\.\.', gap)) or gap == ''
        return gap != '' or i >= len(self.verbs)

    def done(self, t, x):
        s, e, w = x
        o = t[s:e]
        k = w.find(o)
        while k >= 0:
            if t[s - k:s - k + len(w)] == w:
                return True
            k = w.find(o, k + 1)
        return False


groups = collections.OrderedDict()
for r in rows:
    if r.state in ('applied', 'already') and r.old != r.new:
        groups.setdefault(r.old, []).append(r)
patterns, short = [], []
for old, rs in groups.items():
    news = collections.OrderedDict()
    for r in rs:
        news.setdefault(r.new, []).append(r)
    for new, rr in news.items():
        p = Pattern(old, new, rr)
        p.only_listed = len(news) > 1
        (patterns if len(p.key.strip(EDGE)) >= DISTINCT else short).append(p)
        if not rr[0].raw and unesc(old) != old:
            q = Pattern(unesc(old), unesc(new), rr)
            q.only_listed = len(news) > 1
            if len(q.key.strip(EDGE)) >= DISTINCT:
                patterns.append(q)
by_key = collections.defaultdict(set)
for q in patterns:
    by_key[tuple(x.strip(EDGE) for x in q.po)].add(tuple(x.strip(EDGE) for x in q.pn))
all_new = {r.new for r in rows}
for q in patterns:
    if len(by_key[tuple(x.strip(EDGE) for x in q.po)]) > 1 or q.old in all_new:
        q.only_listed = True
patterns.sort(key=lambda p: -p.size)

tracked = subprocess.run(['git', '-C', ROOT, 'ls-files'], capture_output=True, text=True, check=True).stdout.split('\n')
tracked = [p for p in tracked if p and os.path.isfile(ROOT + p) and not os.path.islink(ROOT + p) and not LEAVE.search(p)]


def testish(p):
    return p.endswith('_test.go') or '/testdata/' in p or p.startswith('tests/')


sources = {p: read(p) for p in tracked if p.endswith('.go') and not testish(p)}
newlits = collections.Counter()
for p, t in sources.items():
    for a, b in lits(t):
        newlits[t[a + 1:b - 1]] += 1
# Literals of other non-test files that are the same text without a row.
olds = {p.old: p for p in patterns if not p.only_listed}
own = collections.defaultdict(set)
for r in rows:
    own[r.path].add(r.old)
for p, t in sources.items():
    edits = []
    for a, b in lits(t):
        c = t[a + 1:b - 1]
        if c in olds and c not in own[p] and t[a] == '"' and (p in olds[c].files or re.search(r'test/[^/]*$', p)):
            edits.append((a + 1, b - 1, olds[c].new))
            out['literal without a row in non-test Go, replaced'].append(f'{p}:{t.count(chr(10), 0, a) + 1} {c[:100]}')
    for a, b, w in sorted(edits, reverse=True):
        t = t[:a] + w + t[b:]
    if edits:
        sources[p] = t
        with open(ROOT + p, 'w', encoding='utf-8') as f:
            f.write(t)
        written[p] = written.get(p, 0) + len(edits)
allsource = '\x00'.join(sources.values())
oldparts = '\x00'.join(x for q in patterns for x in q.po)


def words(s):
    return re.findall(r'\s+|[^\s]+', s)


def partial(c, p):
    """What the part c of the old text is in the new one; None if it cannot be said."""
    for i, (o, w) in enumerate(zip(p.po, p.pn)):
        k = o.find(c)
        if k < 0:
            continue
        if o == w:
            return c
        e = k + len(c)
        if (k and o[k - 1].isalnum() and c[:1].isalnum()) or (o[e:e + 1].isalnum() and c[-1:].isalnum()):
            return None
        so, sw = words(o), words(w)
        ends, x = [], 0
        for y in so:
            ends.append((x, x + len(y)))
            x += len(y)
        i0 = next((n for n, (u, v) in enumerate(ends) if v > k), None)
        i1 = next((n for n, (u, v) in enumerate(ends) if v >= e), None)
        lead, tail = k - ends[i0][0], ends[i1][1] - e
        lo = hi = None
        for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, so, sw, autojunk=False).get_opcodes():
            if a1 <= i0 and not (tag == 'insert' and a0 == i0) or a0 > i1:
                continue
            if tag == 'insert' and (a0 == i0 or a0 == i1 + 1):
                continue
            u = b0 + max(0, i0 - a0) if tag == 'equal' else b0
            v = b1 - max(0, a1 - 1 - i1) if tag == 'equal' else b1
            lo, hi = (u if lo is None else min(lo, u)), (v if hi is None else max(hi, v))
        if lo is None or hi <= lo:
            return None
        got = ''.join(sw[lo:hi])
        if lead:
            got = got[lead:] if got[:lead] == so[i0][:lead] else got
        if tail:
            got = got[:-tail] if got.endswith(so[i1][-tail:]) else got
        got = got.rstrip() if c == c.rstrip() else got
        got = got.lstrip() if c == c.lstrip() else got
        return got if len(got) >= 4 and got in w else None
    return None


def allowed(p, t, ed, q):
    """Whether a place is a quotation of the text: in prose the same words may mean something else."""
    if p.endswith('.go') or p.endswith(('.sh', '.py', '.c', '.tpl', '/NOTES.txt')):
        return True
    s = min(x[0] for x in ed)
    a = t.rfind('\n', 0, s) + 1
    b = t.find('\n', s)
    line = t[a:b if b >= 0 else len(t)]
    if '/testdata/' in p:
        return not line.startswith('# ') or q.size >= 30
    if p.endswith('.md'):
        if q.rows[0].src == 'help.tsv' and q.rows[0].kind in ('flag usage',):
            return p.startswith('docs/reference/configuration/') and t[s - 2:s] == '| ' or q.size >= 45
        inside = line[:s - a].count('`') % 2 == 1 or line.startswith('    ') or len(re.findall(r'^\s*```', t[:s], re.M)) % 2 == 1 or p == 'csp-plugins/maintenance.md'
        return inside or q.size >= 40
    if p.startswith('distros/'):
        return 'message:' in line
    return q.size >= 30


FIX = collections.defaultdict(list)
if os.path.exists(f'{A.tables}/texts-by-hand.tsv'):
    for l in open(f'{A.tables}/texts-by-hand.tsv', encoding='utf-8').read().split('\n'):
        c = l.split('\t')
        if len(c) == 3 and not l.startswith('#'):
            FIX[c[0]].append((c[1], c[2]))
for p, fs in FIX.items():
    t = read(p)
    for o, w in fs:
        if o in t:
            t = t.replace(o, w)
            written[p] = written.get(p, 0) + 1
        elif w not in t:
            out['texts-by-hand.tsv: not found'].append(f'{p} {o}')
    with open(ROOT + p, 'w', encoding='utf-8') as f:
        f.write(t)

for p in tracked:
    if p in sources:
        continue
    try:
        t = read(p)
    except UnicodeDecodeError:
        continue
    edits, taken = [], []
    clear = lambda a, b: not any(x < b and a < y for x, y in taken)
    for q in patterns:
        if q.key not in t:
            continue
        if not (p in q.files or (q.size >= WIDE and len(q.key.strip(EDGE)) >= 16 and not q.only_listed)):
            continue
        for ed in q.matches(t):
            if ed and not allowed(p, t, ed, q):
                out['prose, left alone'].append(f'{p}:{t.count(chr(10), 0, ed[0][0]) + 1} {q.old[:90]}')
                continue
            if ed and all(clear(a, b) for a, b, _ in ed):
                edits += ed
                taken += [(a, b) for a, b, _ in ed]
    # Parts of texts in Go literals of tests.
    if p.endswith('.go'):
        for a, b in lits(t):
            c = t[a + 1:b - 1]
            d = c.strip()
            if len(d) < DISTINCT or ' ' not in d or not clear(a, b) or '\n' in c or d not in oldparts or d in allsource:
                continue
            fit = []
            for q in patterns:
                if d in q.key or any(d in x for x in q.po):
                    if p in q.files or len(d) >= 24:
                        w = partial(c, q) or partial(d, q)
                        fit.append((q, w if w is None or partial(c, q) else c.replace(d, w)))
            news = {w for _, w in fit if w is not None}
            if len(news) == 1 and not any(w is None for _, w in fit):
                w = news.pop()
                if w != c:
                    edits.append((a + 1, b - 1, w))
                    taken.append((a, b))
                    out['part of a text in a test, replaced'].append(f'{p}:{t.count(chr(10), 0, a) + 1} {c}  ->  {w}')
            elif fit:
                out['part of a text in a test, by hand'].append(f'{p}:{t.count(chr(10), 0, a) + 1} {c}  ({len(news)} candidates)')
    if edits:
        for a, b, w in sorted(edits, reverse=True):
            t = t[:a] + w + t[b:]
        with open(ROOT + p, 'w', encoding='utf-8') as f:
            f.write(t)
        written[p] = written.get(p, 0) + len(edits)

# ---- 3. what is left ------------------------------------------------------------------------------------------
final = {}
for p in tracked:
    try:
        final[p] = read(p)
    except UnicodeDecodeError:
        pass
src_lits = collections.Counter()
src_text = []
for p, t in final.items():
    if p.endswith('.go') and not testish(p):
        src_text.append(t)
        for a, b in lits(t):
            src_lits[p, t[a + 1:b - 1]] += 1
src_text = '\x00'.join(src_text)
for r in rows:
    if r.state == 'applied' and r.old != r.new and src_lits.get((r.path, r.old)):
        out['old literal left in its non-test file'].append(f'{r.src}:{r.n} {r.path} {r.old[:100]}')
keys = {}
for q in patterns:
    for o, w in zip(q.po, q.pn):
        o = o.strip(EDGE)
        if len(o) >= DISTINCT and o not in w and o not in src_text:
            keys.setdefault(o, q)
for p, t in sorted(final.items()):
    if p.endswith('.go') and not testish(p):
        continue
    hits = [o for o in keys if o in t]
    hits = [o for o in hits if not any(o != x and o in x for x in hits)]
    if hits:
        out['old fixed part left in test, golden file or page'].append(f'{p}: ' + ' | '.join(h[:70] for h in hits[:6]))
# Runs of words of old texts that no source has any more.
grams = {}
for q in patterns:
    for o, w in zip(q.po, q.pn):
        if o == w:
            continue
        ws = o.split()
        for n in (3, 4):
            for i in range(len(ws) - n + 1):
                g = ' '.join(ws[i:i + n])
                g = g.strip('"`\'(),.;:|*')
                if len(g) >= 14 and g not in w:
                    grams.setdefault(g, q)
WORD = re.compile(r'\S+')


def runs(text):
    """Runs of three and four words of a text, without the punctuation at their ends."""
    ws = text.split()
    for n in (3, 4):
        for i in range(len(ws) - n + 1):
            yield ' '.join(ws[i:i + n])


known = set()
for t in src_text.split('\x00'):
    for a, b in lits(t):
        known.update(runs(t[a + 1:b - 1]))
grams = {g for g in grams if g not in known}
TRIM = '"`\'(),.;:|*'


def stale(text):
    for g in runs(text):
        if g in grams or g.strip(TRIM) in grams:
            return g
    return None


def likely(c, least=12):
    """Whether most of a literal is a stretch of an old text that no literal has now."""
    for part in oldlist:
        m = difflib.SequenceMatcher(None, c, part, autojunk=False).find_longest_match() if any(g in c for g in part_grams[part]) else None
        if m and m.size >= least and (m.size >= 0.55 * len(c) or m.size >= 30 or least > 12):
            piece = c[m.a:m.a + m.size].strip(' ' + EDGE)
            if len(piece) >= least and piece not in src_text:
                return True
    return False


oldlist, part_grams = [], {}
for q in patterns:
    for o, w in zip(q.po, q.pn):
        if o != w and len(o) >= 12 and o not in part_grams:
            gs = [g for g in (x.strip(TRIM) for x in runs(o)) if g in grams]
            if gs:
                oldlist.append(o)
                part_grams[o] = gs
for p, t in sorted(final.items()):
    if p.endswith('.go') and not testish(p):
        continue
    spots = []
    if p.endswith('.go'):
        for a, b in lits(t):
            c = t[a + 1:b - 1]
            if stale(c) and likely(c):
                spots.append(f'{t.count(chr(10), 0, a) + 1}: {c[:110]!r} <{stale(c)}>')
    elif p.startswith(('docs/', 'distros/', 'examples/')) or '/testdata/' in p or p.endswith(('.sh', '.yaml', '.txt', '.md')):
        for n, l in enumerate(t.split('\n'), 1):
            g = stale(l)
            if g and likely(l, 20):
                spots.append(f'{n}: {g}')
    if spots:
        kind = 'docs and chart' if p.startswith(('docs/', 'distros/')) or p.endswith('.md') else 'tests and golden files'
        out[f'words of an old text left, {kind} (look)'].append(f'{p}: ' + ' || '.join(spots[:8]) + (f' (+{len(spots) - 8})' if len(spots) > 8 else ''))
for q in short:
    out['old text too short to carry over (by hand)'].append(f'{q.rows[0].path}:{q.rows[0].line} {q.old!r} -> {q.new!r}  {" ".join(sorted(q.files))[:160]}')

st = collections.Counter((r.src, r.state) for r in rows)
lines = ['rows: ' + ', '.join(f'{a} {b} {n}' for (a, b), n in sorted(st.items())),
         f'files changed: {len(written)} ({sum(1 for p in written if p.endswith(".go") and not testish(p))} non-test Go, '
         f'{sum(1 for p in written if p.endswith(".go") and testish(p))} test Go, {sum(1 for p in written if not p.endswith(".go"))} other), edits: {sum(written.values())}']
for k, v in out.items():
    v = list(collections.OrderedDict.fromkeys(v))
    lines += ['', f'== {k}: {len(v)}'] + v
go = [p for p in written if p.endswith('.go')]
bad = subprocess.run(['gofmt', '-l'] + go, capture_output=True, text=True, cwd=ROOT).stdout.split() if go else []
if bad:
    subprocess.run(['gofmt', '-w'] + bad, cwd=ROOT)
    lines += ['', f'== gofmt -w: {len(bad)}'] + bad
text = '\n'.join(lines) + '\n'
if A.report:
    open(A.report, 'w').write(text)
    print('\n'.join(l for l in lines if l.startswith(('rows', 'files', '=='))))
else:
    print(text)
