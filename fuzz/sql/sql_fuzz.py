#!/usr/bin/env python3
"""SQL fuzzer for Vectile: tables, queries and files at random, in sets of five kinds (docs/testing.md, "Generated queries").

  sql_fuzz.py --bin PATH [--subject EMULATED] --seed N --minutes M --mode cpu|gpu --out DIR [--workers N] [--focus KIND,..]

--tables is the number of sets per worker (0: until time is up), --queries the queries of a set of tables, and
--shape-queries those of a set of shapes. OUT/stats.json and OUT/summary.txt have counts; OUT/findings/* a report and
what it takes to see it again. Standard library, numpy and pyarrow only.
"""
import argparse, base64, collections, copy, glob, json, os, random, re, resource, shutil
import signal, subprocess, sys, time, traceback
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.ipc as ipc

import products, roundtrips, shapes
from columns import raw_value
from comparing import MM_NAN, compare, floats_of, norm_col
from queries import Gen, Q, lit
from running import BIG, PEAK, REASONS, ROWERR, STATS, kind_of, mk, run_many, shorten
from tables import Set

# ---------------------------------------------------------------- one set

# DataFusion 55.2 answers max(a + 1), min(b) wrongly, over Parquet too, where a scan applies the filter that is made of
# min(b) alone (AggregateExec::init_dynamic_filter): the oracle goes without. The subject has to cope by itself.
ORACLE = ["SET vectile.gpu = 'off'", "SET datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown = false", "SET datafusion.execution.target_partitions = 2", "SET datafusion.execution.parquet.pruning = false",
          "SET datafusion.execution.parquet.enable_page_index = false", "SET datafusion.execution.parquet.bloom_filter_on_read = false"]

# How often a set is of which kind.
MIX = {'tables': 1, 'shapes': 13, 'products': 1, 'convert': 5, 'partitions': 5}
FILES = {'products': products.run_set, 'convert': roundtrips.run_convert, 'partitions': roundtrips.run_partitions}

class Worker:
    def __init__(self, args):
        self.args = args; self.out = args.out
        self.slow_cxx = None
        self.work = os.path.join(args.scratch or os.path.join(args.out, 'work'), 'w%d' % args.seed)
        os.makedirs(self.work, exist_ok=True); os.makedirs(os.path.join(self.out, 'findings'), exist_ok=True)
        self.sigs = collections.Counter(); self.log = open(os.path.join(self.out, 'log-%d.txt' % args.seed), 'a')
        if args.subject != args.bin: self.compile_fast()
        self.start = time.time(); self.end = self.start + args.minutes * 60
        self.shapes = collections.Counter(); self.encodings = collections.Counter(); self.errors = collections.Counter()
    def compile_fast(self):
        """The emulator spends its time in compiling kernels: it leaves out optimisation, but for the interpreter, which all queries share."""
        path = os.path.join(self.out, 'c++0')
        with open(path, 'w') as f: f.write('#!/bin/sh\ncase "$*" in *CUCPU_KERNEL=interpret*) exec %s "$@";; esac\nexec %s "$@" -O0\n' % ((os.environ.get('CXX', 'c++'),) * 2))
        os.chmod(path, 0o755)
        self.slow_cxx, os.environ['CXX'] = os.environ.get('CXX'), path
    def say(self, *a):
        print(time.strftime('%H:%M:%S'), *a, file=self.log, flush=True)
    def loop(self):
        k = 0
        while time.time() < self.end and not (self.args.until and any(self.args.until.search(x) for x in self.sigs if self.sigs[x])) and (not self.args.tables or k < self.args.tables):
            seed = self.args.only if self.args.only is not None else self.args.seed * 100003 + k
            try: self.of_kind(self.kind(seed), seed)
            except Exception:
                STATS['fuzzer errors'] += 1; self.say('FUZZER ERROR set', seed, traceback.format_exc())
            k += 1; self.save()
            if self.args.only is not None: break
        shutil.rmtree(self.work, ignore_errors=True)
    def save(self):
        STATS['peak MB'] = int(PEAK[0] * 1024)
        json.dump(dict(stats=STATS, reasons=REASONS.most_common(400), sigs=self.sigs, shapes=self.shapes, encodings=self.encodings, errors=self.errors.most_common(60)),
                  open(os.path.join(self.out, 'stats-%d.json' % self.args.seed), 'w'), indent=1)
    def kind(self, seed):
        """What a set is of: a seed says it, as far as --focus leaves a choice."""
        if not self.args.focus:
            # consecutive seeds share a shuffled deck, so that each run of 25 sets has every kind
            deck = [k for k, n in MIX.items() for _ in range(n)]
            random.Random(seed // len(deck)).shuffle(deck)
            return deck[seed % len(deck)]
        kinds = [k for k in MIX if k in self.args.focus or k == 'shapes' and set(self.args.focus) & set(shapes.SHAPES)]
        return random.Random(seed).choice(kinds)
    def of_kind(self, kind, seed):
        t0 = time.time()
        if kind == 'tables': self.one(seed)
        elif kind == 'shapes': shapes.run_set(self, seed, self.args.focus)
        else: FILES[kind](self, seed)
        STATS['sets of ' + kind] += 1; STATS['seconds in sets of ' + kind] += int(time.time() - t0)
    def finding_of_text(self, sig, seed, text, s=None, sql='', setup=(), side='cpu'):
        """A finding of a set that is no `Set`; `s` may have tables and settings to keep with it."""
        STATS['findings'] += 1
        d = os.path.join(self.out, 'findings', re.sub(r'[^\w-]+', '_', sig)[:60] + '-%d-%d' % (seed, STATS['findings'])); os.makedirs(d, exist_ok=True)
        with open(os.path.join(d, 'report.txt'), 'w') as f:
            f.write('signature: %s\nset: --only %d --mode %s --focus %s\n%s\n\nSQL:\n%s\n' % (sig, seed, self.args.mode, self.kind(seed), text, sql))
        used = resource.getrusage(resource.RUSAGE_CHILDREN); own = resource.getrusage(resource.RUSAGE_SELF)
        print('%s FINDING after %.0f s, %.0f s of CPU: %s (%s)' % (time.strftime('%H:%M:%S'), time.time() - self.start, used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime, sig, d), flush=True)
        if s is not None and os.path.isdir(s.dir):
            keep = os.path.join(d, 'files')
            for k in ('src', 'vec'):
                if os.path.isdir(os.path.join(s.dir, k)): shutil.copytree(os.path.join(s.dir, k), os.path.join(keep, k), dirs_exist_ok=True)
            if sql:
                script = (s.gpu if side == 'gpu' else getattr(s, 'cpu', ["SET vectile.gpu = 'off'"])) + s.settings + s.known + list(setup) + [sql]
                open(os.path.join(d, 'script.sql'), 'w').write(';\n'.join(x.replace(s.dir, keep) for x in script) + ';\n')
        self.save()
    def one(self, seed):
        self.seed = seed
        d = os.path.join(self.work, 'set')
        s = Set(d, seed, self.args)
        for a, b, rg, pins, r in s.write():
            self.finding('convert-' + r.status + '-' + kind_of(r.err), s, seed, None, 'COPY %s row_group_rows %d %s: %s' % (a, rg, pins, shorten(r.err, 1500)))
            return
        STATS['sets'] += 1; STATS['rows'] += sum(t.rows for t in s.tables); STATS['source ' + s.fmt] += 1
        if STATS['sets'] % 4 == 1: self.inspect(s)
        gen = Gen(s, seed + 1)
        queries = []
        for t in s.tables:                                     # the round trip first
            q = Q(); q.kind = 'roundtrip'; q.frm = t.name + ' f'; q.select = [lit('f."%s"' % c.name) for c in t.cols]; q.tags = ['exact'] * len(t.cols)
            queries.append(q)
        while len(queries) < self.args.queries:
            q = gen.query()
            if sum(t.rows for t in s.tables) > 60000 and q.kind == 'rows' and not q.limit and gen.rng.random() < .6: continue
            queries.append(q)
            while q and q.joins and gen.rng.random() < .5:
                q = gen.similar(q)
                if q: queries.append(q); STATS['similar queries'] += 1
        ids = [('q%d' % i, q.sql(), 'copy') for i, q in enumerate(queries)]
        oracle = run_many(self.args.bin, s.views(s.src), ORACLE, ids, mk(d, 'o'), self.args.hang)
        # what the oracle rejects when planning tells nothing
        good = [(id, sql, w) for (id, sql, w) in ids if not (oracle[id][0] == 'error' and kind_of(oracle[id][1]) in ('plan', 'notimpl') and self.args.skip)]
        fine = [x for x in good if oracle[x[0]][0] == 'ok']          # the first error ends a process: those last
        stmts = list(fine)
        if self.args.mode == 'gpu':
            stmts += [(id + 'w', sql, 'copy') for id, sql, _ in fine]
        stmts += [(id + 'e', 'EXPLAIN ' + sql, 'show') for id, sql, _ in good if oracle[id][0] == 'ok'] if self.args.mode == 'gpu' else []
        if self.args.mode == 'gpu': stmts += [(id + 'a', 'EXPLAIN ANALYZE VERBOSE ' + sql, 'show') for id, sql, _ in good if oracle[id][0] == 'ok' and gen.rng.random() < .5]
        if self.args.twice: stmts += [(id + k, sql, 'show') for id, sql, _ in fine for k in 'yz']
        stmts += [x for x in good if oracle[x[0]][0] != 'ok']
        t0 = time.time()
        subject = run_many(self.args.subject, *s.subject(), stmts, mk(d, 's'), self.args.hang)
        self.say('set', seed, s.fmt, [(t.name, t.rows) for t in s.tables], 'queries', len(queries), 'ok', sum(1 for i, _, _ in ids if oracle[i][0] == 'ok'), '%.1fs' % (time.time() - t0))
        while BIG:
            rss, script = BIG.pop()
            self.finding('memory', s, seed, None, 'a process took %.1f GiB' % rss, script=[script])
        opening = [v for v in subject.values() if v[0] == 'error' and 'cannot open table' in v[1]]
        if opening: self.finding('open', s, seed, queries[0], shorten(opening[0][1])); return
        for i, q in enumerate(queries):
            id = 'q%d' % i
            if id not in subject: STATS['skipped'] += 1; self.errors['skipped ' + shorten(oracle[id][1], 120)] += 1; continue
            STATS['queries'] += 1; self.shapes[q.kind] += 1
            if q.joins or ' , ' in q.frm: STATS['with joins'] += 1
            for suffix in ([''] if self.args.mode == 'cpu' else ['', 'w']):
                if id + suffix not in subject: continue
                v = self.judge(s, q, id, oracle[id], subject.get(id + suffix, ('missing', '')), suffix, d)
                if v:
                    self.report(s, seed, q, i, v, suffix, queries, oracle[id], subject.get(id + suffix), d)
                    break
            first, second = subject.get(id + 'y'), subject.get(id + 'z')
            if first and second and set(q.all_tags()) == {'exact'}:
                STATS['answered twice'] += 1
                of = lambda r: (r[0], kind_of(r[1]) if r[0] != 'ok' else sorted(re.sub(r'-0\.0\b', '0.0', r[1]).splitlines()))
                if of(first) != of(second): self.finding('twice', s, seed, q, 'the second answer differs: %s / %s' % (first[1][:700], second[1][:700]), script=[q.sql(), q.sql()])
            bad = self.explain(q, subject.get(id + 'e'), subject.get(id + 'a'))
            if bad:
                self.sigs['gpu-failed ' + bad] += 1; self.say('GPU FAILED', bad, 'set', seed, 'query', i)
                if self.sigs['gpu-failed ' + bad] == 1: self.say(self.blame(s, queries, bad, d))
                if self.sigs['gpu-failed ' + bad] <= self.args.keep: self.finding('gpu-failed ' + bad, s, seed, q, subject[id + 'a'][1][-6000:], script=[x.sql() for x in queries[:i + 1]])
    def explain(self, q, e, a):
        if e and e[0] == 'ok':
            t = e[1]
            STATS['explained'] += 1
            agg, scan = 'FusedAggregateExec' in t, bool(re.search(r'\bgpu=', t))
            STATS['plans with FusedAggregateExec'] += agg; STATS['plans with gpu= scans'] += scan; STATS['plans with either'] += agg or scan
            if agg and 'joins=[' in t: STATS['plans with joins in FusedAggregateExec'] += 1
            if agg and 'gby=[' in t and 'gby=[]' not in t: STATS['plans with groups in FusedAggregateExec'] += 1
            for m in re.finditer(r'(not_on_gpu|not_fused)=([^\n]*)', t):
                REASONS[m.group(1) + ': ' + reason(m.group(2))] += 1
        if a and a[0] == 'ok':
            t = a[1]
            gpu = [unit(x) for x in re.findall(r'gpu_rows=([\d.]+ ?[KMB]?)', t)]
            fb = [x for x in re.findall(r'fallbacks(?:\{.*?\})?=(\d+)', t) if int(x) > 0]
            STATS['analyzed'] += 1; STATS['analyzed with gpu_rows > 0'] += any(g > 0 for g in gpu)
            STATS['analyzed with fallbacks'] += bool(fb)
            why = [m.group(1) for m in re.finditer(r'fallbacks\{.*?reason=(.*?)\}=', t, re.S)]
            for x in set(reason(x) for x in why): REASONS['fallback: ' + x] += 1
            for x in why:
                if re.search(r'does not compile|CUDA_ERROR| failed|orrupt|beyond|nternal|damaged|invalid', x): return reason(x)[:90]
        elif a: REASONS['EXPLAIN ANALYZE failed: ' + shorten(a[1], 100)] += 1
    def magnitude(self, s, q, d):
        def f(i):
            try:
                m = mk(d, 'm')
                r = run_many(self.args.bin, s.views(s.src), ORACLE, [('m', q.sql(True), 'copy')], m, self.args.hang)
                if r['m'][0] != 'ok': return None
                fa = os.path.join(m, 'res', 'm.parquet'); t = pq.read_table(fa)
                tags = q.all_tags()
                exact = [j for j in range(t.num_columns) if tags[j] == 'exact' or not pa.types.is_floating(t.schema.field(j).type)]
                if exact:
                    x = pa.table({'c%d' % j: norm_col(t.column(j)) for j in exact}); o = pc.sort_indices(x, sort_keys=[('c%d' % j, 'ascending') for j in exact])
                    return floats_of(t.column(i).take(o))[0]
                return floats_of(t.column(i))[0]
            except Exception: return None
        return f
    def judge(self, s, q, id, o, u, suffix, d, count=True):
        """None, or (signature, text)."""
        def note(k):
            if count: STATS[k] += 1
        if u[0] == 'crash' or (u[0] == 'hang' and o[0] != 'hang'): return (u[0], shorten(u[1], 1500))
        if o[0] in ('crash', 'hang'):
            note('oracle ' + o[0]); return ('oracle-' + o[0], shorten(o[1], 1500)) if count and o[0] == 'crash' else None
        if o[0] == 'ok' and u[0] == 'ok':
            MM_NAN[0] = q.nan
            try: v, text = compare(os.path.join(d, 'o', 'res', id + '.parquet'), os.path.join(d, 's', 'res', id + suffix + '.parquet'), q.all_tags(), self.magnitude(s, q, d))
            except Exception as e: note('compare failed'); return ('compare-failed', traceback.format_exc()[-600:])
            note('compared'); note('compared: ' + v)
            if count and os.path.exists(os.path.join(d, 'o', 'res', id + '.parquet')) and pq.read_metadata(os.path.join(d, 'o', 'res', id + '.parquet')).num_rows > 0: note('compared, with rows')
            if v in ('equal', 'tolerance', 'magnitude', 'zero', 'nanminmax'): return None
            return (v, text)
        ko = kind_of(o[1]) if o[0] == 'error' else None
        ku = kind_of(u[1]) if u[0] == 'error' else None
        if u[0] == 'missing': note('missing'); return None
        if ko and ku:
            note('both fail'); note('both fail: ' + ko)
            if count: self.errors['both: ' + re.sub(r'\d+', '#', shorten(o[1], 140))] += 1
            if ko == ku or (ko in ROWERR and ku in ROWERR): return None
            if {ko, ku} & {'internal', 'panic'} and ko != ku: return ('error-kinds-%s-%s' % (ko, ku), shorten(o[1]) + '\n' + shorten(u[1]))
            note('both fail, differently'); 
            if count: self.errors['differently: %s / %s' % (shorten(o[1], 140), shorten(u[1], 140))] += 1
            return None
        k = ko or ku
        if k in ROWERR:
            note('only one fails on a row (known class): ' + ('oracle' if ko else 'subject'))
            if count: self.errors['one (%s): %s' % ('oracle' if ko else 'subject', re.sub(r'\d+', '#', shorten(o[1] if ko else u[1], 140)))] += 1
            return None
        return ('error-only-' + ('oracle' if ko else 'subject') + '-' + k, shorten(o[1] if ko else u[1], 1200))
    # triage
    def rerun(self, s, q, dir, settings=None, base=None, sql=None):
        """Oracle and subject in processes of their own; the verdict."""
        o = run_many(self.args.bin, s.views(s.src), ORACLE, [('x', sql or q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
        u = run_many(self.args.subject, *s.subject(settings), [('x', sql or q.sql(), 'copy'), ('xw', sql or q.sql(), 'copy')] if self.args.mode == 'gpu' else [('x', sql or q.sql(), 'copy')], mk(dir, 's'), self.args.hang)
        v = self.judge(s, q, 'x', o, u.get('x', ('missing', '')), '', dir, count=False)
        if not v and self.args.mode == 'gpu': v = self.judge(s, q, 'x', o, u.get('xw', ('missing', '')), 'w', dir, count=False)
        return v
    def report(self, s, seed, q, i, v, suffix, queries, o, u, d):
        sig = v[0]
        full = sig + '/' + q.kind + ('/join' if q.joins else '') if not sig.startswith(('error', 'crash', 'oracle')) else sig + ' ' + re.sub(r'[0-9]+|/tmp\S+|"\w+"|\w+\."?\w+"?', '#', shorten(v[1], 110)).replace('\n', ' ')
        self.sigs[full] += 1
        self.say('FINDING', full, 'set', seed, 'query', i, v[1][:300].replace('\n', ' '))
        if self.sigs[full] > self.args.keep: return
        dir = mk(self.work, 'min')
        if sig == 'hang':                                 # slow in both is DataFusion's matter
            t0 = time.time()
            run_many(self.args.bin, s.views(s.src), ORACLE, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)
            if time.time() - t0 > self.args.hang / 5:
                STATS['slow in both'] += 1; self.sigs[full] -= 1; self.say('slow in both: %.1fs' % (time.time() - t0), q.sql()); return
        again = self.rerun(s, q, dir)
        extra = []
        if not again:
            extra.append('NOT reproduced alone, in a process of its own (suffix %r: w = second, warm run)' % suffix)
            self.finding(full, s, seed, q, v[1], extra, script=[x.sql() for x in queries[:i + 1]]); return
        if sig in ('rows', 'values', 'fsum', 'schema') and self.oracle_alone(s, q, dir):
            full = 'oracle-wrong ' + full                   # the same rows in memory give the subject's answer
            self.sigs[full] += 1; self.sigs[sig + '/' + q.kind + ('/join' if q.joins else '')] -= 1; STATS['oracle wrong, tables in memory agree with the subject'] += 1
            self.say(full, q.sql())
            if self.sigs[full] > 1: return
            extra.append('DataFusion over the SOURCE FILES is wrong: their rows in a MemTable agree with the subject')
        if self.args.mode == 'gpu':
            off = self.rerun(s, q, dir, ["SET vectile.gpu = 'off'"]); extra.append('with vectile.gpu = off: ' + (off[0] + ' ' + off[1][:200] if off else 'agrees with the oracle'))
        one = self.rerun(s, q, dir, s.settings + ["SET vectile.pushdown_filters = false"]); extra.append('with pushdown_filters = false: ' + (one[0] if one else 'agrees'))
        one = self.rerun(s, q, dir, s.settings + ["SET datafusion.execution.target_partitions = 1"]); extra.append('with target_partitions = 1: ' + (one[0] if one else 'agrees'))
        q, s2, v2 = self.minimise(s, q, again, dir)
        extra.append(self.memory_oracle(s2, q, dir))
        self.finding(full, s2, seed, q, v2[1], extra)
    def blame(self, s, queries, bad, d):
        """A failed kernel spoils its process: which query fails in a process of its own?"""
        end = time.time() + 90; found = []
        for i, q in enumerate(queries):
            if time.time() > end or len(found) > 2: break
            r = run_many(self.args.subject, *s.subject(), [('x', 'EXPLAIN ANALYZE VERBOSE ' + q.sql(), 'show')], mk(d, 's'), self.args.hang)['x']
            if r[0] in ('crash', 'hang') or (r[0] == 'ok' and re.search(r'reason=[^}]*(does not compile|CUDA_ERROR| failed)', r[1])):
                found.append(i); self.finding('gpu-failed-alone ' + bad, s, self.seed, q, shorten(r[1], 8000) if r[0] != 'ok' else '\n'.join(x[:1500] for x in r[1].splitlines() if 'reason=' in x), ['query %d of the set, in a process of its own' % i])
        return 'queries that fail alone: %s' % found
    def oracle_alone(self, s, q, dir):
        try:
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            o = run_many(self.args.bin, [('v_' + n, p) for n, p in s.views(s.src)], make, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
            u = run_many(self.args.subject, *s.subject(), [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            return o[0] == 'ok' and u[0] == 'ok' and self.judge(s, q, 'x', o, u, '', dir, count=False) is None
        except Exception: return False
    def memory_oracle(self, s, q, dir):
        """The query over tables in memory made of the Vectile files: tells reading from planning."""
        try:
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            r = run_many(self.args.subject, [('v_' + n, p) for n, p in s.views(s.vec)], make, [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            o = run_many(self.args.bin, s.views(s.src), ORACLE, [('x', q.sql(), 'copy')], mk(dir, 'o'), self.args.hang)['x']
            v = self.judge(s, q, 'x', o, r, '', dir, count=False)
            w = ''
            make = ["SET vectile.gpu = 'off'"] + ["CREATE TABLE %s AS SELECT * FROM v_%s" % (t.name, t.name) for t in s.tables]
            r2 = run_many(self.args.bin, [('v_' + n, p) for n, p in s.views(s.src)], make, [('x', q.sql(), 'copy')], mk(dir, 's'), self.args.hang)['x']
            v2 = self.judge(s, q, 'x', o, r2, '', dir, count=False)
            return 'rows of the Vectile files in a MemTable: %s; rows of the source files in a MemTable: %s (against the oracle)' % (v[0] + ' ' + v[1][:200] if v else 'agree', v2[0] + ' ' + v2[1][:200] if v2 else 'agree')
        except Exception as e: return 'memory oracle failed: %s' % e
    def minimise(self, s, q, v, dir):
        end = time.time() + self.args.shrink; tries = [0]
        def holds(s, q):
            tries[0] += 1
            w = self.rerun(s, q, dir)
            return w if w and w[0] == v[0] else None
        changed = True
        while changed and time.time() < end:
            changed = False
            for c in shrinks(q):
                if time.time() > end: break
                w = holds(s, c)
                if w: q, v, changed = c, w, True; break
        # rows: halves of each table's files, as long as it holds
        s2 = copy.copy(s); s2.tables = [copy.copy(t) for t in s.tables]; s2.dir = mk(self.work, 'rows'); k = 0
        def try_tables(tables):
            x = copy.copy(s2); x.tables = tables; k_dir = mk(self.work, 'rows%d' % (tries[0] % 2)); x.dir = k_dir
            if x.write(): return None
            w = holds(x, q)
            return (x, w) if w else None
        sql = q.sql()
        used = [t for t in s2.tables if re.search(r'\b%s\b' % t.name, sql)]
        first = try_tables(used)
        if first:
            s2, v = first; changed = True
            while changed and time.time() < end:
                changed = False
                for ti, t in enumerate(s2.tables):
                    for c in smaller(t):
                        if time.time() > end: break
                        r = try_tables(s2.tables[:ti] + [c] + s2.tables[ti + 1:])
                        if r: s2, v = r; changed = True; break
                    if changed: break
            # the last success must be on disk for what follows
            s2.dir = mk(self.work, 'final'); s2.write()
            return q, s2, v
        s.write()
        return q, s, v
    def finding(self, sig, s, seed, q, text, extra=(), script=None):
        STATS['findings'] += 1
        name = re.sub(r'[^\w-]+', '_', sig)[:60] + '-%d-%d' % (seed, STATS['findings'])
        d = os.path.join(self.out, 'findings', name); os.makedirs(d, exist_ok=True)
        sql = q.sql() if q else ''
        parts = []; size = 0
        for t in s.tables:
            for i, p in enumerate(t.parts):
                b = pa.BufferOutputStream()
                pq.write_table(p, b, compression='zstd') if s.fmt == 'parquet' else write_ipc(p, b)
                raw = b.getvalue().to_pybytes(); size += len(raw)
                parts.append((t.name, i, raw, t.layout[i]))
        with open(os.path.join(d, 'report.txt'), 'w') as f:
            f.write('signature: %s\nset: --only %d --mode %s --queries %d\nsettings: %s\n%s\n%s\n\nSQL:\n%s\n' % (sig, seed, self.args.mode, self.args.queries, '; '.join(s.settings), text, '\n'.join(extra), sql))
            for t in s.tables:
                f.write('\n%s (%d rows in %d files, %s): %s\n' % (t.name, t.rows if False else sum(len(p) for p in t.parts), len(t.parts), t.layout, ', '.join('%s %s' % (c.name, c.t) for c in t.cols)))
                if sum(len(p) for p in t.parts) <= 12:
                    for p in t.parts: f.write('\n'.join('  %s: %s' % (c, [raw_value(x) for x in p.column(c).combine_chunks()]) for c in p.column_names)[:3000] + '\n')
        if script: open(os.path.join(d, 'script.sql'), 'w').write(';\n'.join(script) + ';\n')
        if size < 300000:
            with open(os.path.join(d, 'repro.py'), 'w') as f:
                f.write(REPRO % dict(parts=repr([(a, i, base64.b64encode(r).decode(), l) for a, i, r, l in parts]), fmt=s.fmt, settings=repr(s.settings), oracle=repr(ORACLE), sql=repr(sql), bin=self.args.bin))
        self.save()

def write_ipc(p, b):
    with ipc.new_file(b, p.schema) as w:
        w.write_table(p)

REPRO = '''#!/usr/bin/env python3
# python3 repro.py [BIN]: writes the tables, converts them, runs the query over both
import base64, os, subprocess, sys, tempfile
BIN = sys.argv[1] if len(sys.argv) > 1 else %(bin)r
PARTS = %(parts)s
FMT, SETTINGS, ORACLE = %(fmt)r, %(settings)s, %(oracle)s
SQL = %(sql)s
d = tempfile.mkdtemp()
for t, i, data, (rg, pins) in PARTS:
    for k in ('src', 'vec'): os.makedirs(os.path.join(d, k, t), exist_ok=True)
    a, b = os.path.join(d, 'src', t, 'p%%d.%%s' %% (i, FMT)), os.path.join(d, 'vec', t, 'p%%d.vectile' %% i)
    open(a, 'wb').write(base64.b64decode(data))
    o = ["row_group_rows %%d" %% rg] + ["'encoding.%%s' '%%s'" %% x for x in pins.items()]
    subprocess.run([BIN, 'sql', "SET datafusion.execution.target_partitions = 1; SET vectile.gpu = 'off'; COPY (SELECT * FROM '%%s') TO '%%s' STORED AS VECTILE OPTIONS (%%s)" %% (a, b, ', '.join(o))], check=True)
names = sorted({p[0] for p in PARTS})
for k, s in (('src', ORACLE), ('vec', SETTINGS)):
    print('--', k, s, flush=True)
    f = os.path.join(d, k + '.sql'); open(f, 'w').write(''.join(x + ';\\n' for x in s) + SQL + ';\\n')
    subprocess.run([BIN, 'sql', '-f', f] + [x for x in s if x.startswith('--')] + [x for n in names for x in ('-t', '%%s=%%s/' %% (n, os.path.join(d, k, n)))])
print('files in', d)
'''

def unit(x):
    m = re.match(r'([\d.]+) ?([KMB]?)', x); return float(m.group(1)) * {'': 1, 'K': 1e3, 'M': 1e6, 'B': 1e9}[m.group(2)]

def reason(t):
    t = t.split('","')[0].strip().strip('"')
    t = re.sub(r'\bf\."?[\w ]+"?|\bo\d+@\d+|\w+@\d+', 'COL', t)
    t = re.sub(r"\d+(\.\d+)?", '#', t)
    m = re.match(r'(no kernel for) (.*?)(, which is .*)?$', t)
    if m: t = m.group(1) + ' ' + m.group(2)[:50] + (m.group(3) or '')
    return t[:130]

def shrinks(q):
    """Smaller queries."""
    def dup(): return copy.deepcopy(q)
    if q.outer:
        c = dup(); c.outer = None; yield c
    if q.union is not None:
        c = dup(); c.union = None; yield c
        c = copy.deepcopy(q.union); c.union = None; yield c
    if q.limit:
        c = dup(); c.limit = None; yield c
    for i in range(len(q.having)):
        c = dup(); del c.having[i]; yield c
    for i in range(len(q.where)):
        if q.where[i].cls == 'join': continue
        c = dup(); del c.where[i]; yield c
    for i in range(len(q.joins)):
        c = dup(); del c.joins[i]; yield c
    if len(q.select) > 1:
        for i in reversed(range(len(q.select))):
            c = dup(); s = c.select.pop(i); c.tags.pop(i)
            if c.limit: c.limit = c.limit[:2] + ([d for j, d in enumerate(c.limit[2]) if j != i],)
            c.group = [g for g in c.group if g.sql() != s.sql()]; yield c
    for where in ('where', 'select'):
        for i, n in enumerate(getattr(q, where)):
            if where == 'select' and any(g.sql() == n.sql() for g in q.group): continue
            for path, m in n.walk():
                if not m.kids: continue
                for k, kid in enumerate(m.kids):
                    if kid.cls and kid.cls == m.cls:
                        c = dup(); lst = getattr(c, where)
                        if not path: lst[i] = copy.deepcopy(kid)
                        else:
                            p = lst[i]
                            for x in path[:-1]: p = p.kids[x]
                            p.kids[path[-1]] = copy.deepcopy(kid)
                        yield c
                if m.fmt.endswith(' FILTER (WHERE {})'):
                    c = dup(); lst = getattr(c, where)
                    x = copy.deepcopy(m); x.fmt = x.fmt[:-len(' FILTER (WHERE {})')]; x.kids.pop()
                    if x.absfmt: x.absfmt = x.absfmt[:-len(' FILTER (WHERE {})')]
                    if not path: lst[i] = x; yield c

def smaller(t):
    """Copies of a table with fewer files, rows or columns."""
    def of(parts, layout):
        c = copy.copy(t); c.parts, c.layout = parts, layout; return c
    if len(t.parts) > 1:
        for i in range(len(t.parts)): yield of(t.parts[:i] + t.parts[i + 1:], t.layout[:i] + t.layout[i + 1:])
    for i, p in enumerate(t.parts):
        n = len(p)
        if n > 1:
            cuts = [(0, n // 2), (n // 2, n)] + ([(0, n * 3 // 4), (n // 4, n)] if n < 5000 else []) + ([(0, n - 1), (1, n)] if n < 12 else [])
            for a, b in cuts:
                yield of(t.parts[:i] + [p.slice(a, b - a)] + t.parts[i + 1:], t.layout)
    if any(l[1] for l in t.layout): yield of(t.parts, [(rg, {}) for rg, _ in t.layout])

def inspect(self, s):
    try:
        for t in s.tables:
            for i in range(len(t.parts)):
                r = subprocess.run([self.args.bin, 'inspect', os.path.join(s.vec, t.name, 'p%d.vectile' % i), '--format', 'json'], capture_output=True, text=True, timeout=60)
                for c in json.loads(r.stdout)['columns']:
                    for h in c['chunks']: self.encodings[re.sub(r'\b(\w+)\b', r'\1', h['encoding'])[:40]] += 1
    except Exception as e: self.say('inspect', e, shorten(r.stderr, 200))
Worker.inspect = inspect

def total(out):
    tot = dict(stats=collections.Counter(), reasons=collections.Counter(), sigs=collections.Counter(), shapes=collections.Counter(), encodings=collections.Counter(), errors=collections.Counter())
    for f in glob.glob(os.path.join(out, 'stats-*.json')):
        j = json.load(open(f))
        for k in tot:
            items = j[k].items() if isinstance(j[k], dict) else j[k]
            for a, b in items: tot[k][a] = max(tot[k][a], b) if a in ('peak MB', 'max rss') else tot[k][a] + b
    json.dump({k: dict(v.most_common()) for k, v in tot.items()}, open(os.path.join(out, 'stats.json'), 'w'), indent=1)
    lines = []
    for k in ('stats', 'sigs', 'shapes', 'errors', 'reasons', 'encodings'):
        lines.append('== ' + k); lines += ['%8d  %s' % (b, a) for a, b in tot[k].most_common(45)]
    st = tot['stats']
    if st['explained']: lines.append('fused share: %.1f%% of %d plans have FusedAggregateExec, %.1f%% anything on the GPU; of %d analyzed %.1f%% had gpu_rows > 0, %.1f%% fallbacks' % (
        100 * st['plans with FusedAggregateExec'] / st['explained'], st['explained'], 100 * st['plans with either'] / st['explained'], st['analyzed'],
        100 * st['analyzed with gpu_rows > 0'] / max(1, st['analyzed']), 100 * st['analyzed with fallbacks'] / max(1, st['analyzed'])))
    text = '\n'.join(lines) + '\n'
    open(os.path.join(out, 'summary.txt'), 'w').write(text)
    return text

def main():
    p = argparse.ArgumentParser()
    p.add_argument('--bin', required=True); p.add_argument('--subject', help='another program that answers `sql` over .vectile files'); p.add_argument('--plain', help='the example `emulated`, which has DataFusion alone with --plain: without it, what our rules break counts as DataFusion\'s own'); p.add_argument('--seed', type=int, default=1); p.add_argument('--tables', type=int, default=0)
    p.add_argument('--queries', type=int, default=60); p.add_argument('--minutes', type=float, default=5); p.add_argument('--mode', choices=['cpu', 'gpu'], default='cpu'); p.add_argument('--kernels', choices=['interpreted', 'generated', 'auto'], help='of all sets in mode gpu; otherwise the seed of a set says')
    p.add_argument('--out', required=True); p.add_argument('--workers', type=int, default=1); p.add_argument('--hang', type=float, default=60)
    p.add_argument('--only', type=int, help='just the table set with this seed, as reports name it'); p.add_argument('--keep', type=int, default=4, help='findings of a signature to minimise, per worker')
    p.add_argument('--shrink', type=float, default=60, help='seconds to spend on making a finding smaller'); p.add_argument('--scratch', help='where tables are written (default OUT/work)')
    p.add_argument('--quiet', action='store_true'); p.add_argument('--twice', action='store_true', help='have each query answered twice in a session: the second time, its plan may be a kept one')
    p.add_argument('--focus', type=lambda x: x.split(','), help='only sets of these kinds, or shapes of queries: %s; %s' % (', '.join(MIX), ', '.join(shapes.SHAPES)))
    p.add_argument('--shape-queries', type=int, default=16, help='queries of a set of shapes; each has variants')
    p.add_argument('--until', type=re.compile, help='stop at a finding whose signature this expression matches')
    p.add_argument('--memory', action='store_true', help='copy the tables of sets of tables to tables in memory, which queries then read')
    p.add_argument('--skip', type=int, default=1, help='leave out what the oracle fails to plan')
    a = p.parse_args()
    a.plain = os.path.abspath(a.plain) if a.plain else os.path.abspath(a.subject) if a.subject and 'emulated' in os.path.basename(a.subject) else None
    a.bin, a.subject, a.out = os.path.abspath(a.bin), os.path.abspath(a.subject or a.bin), os.path.abspath(a.out)
    os.makedirs(a.out, exist_ok=True)
    if a.scratch: a.scratch = os.path.abspath(a.scratch)
    if a.workers > 1:
        args = [x for x in sys.argv[1:]]
        i = args.index('--workers'); del args[i:i + 2]
        if '--seed' in args: i = args.index('--seed'); del args[i:i + 2]
        procs = [subprocess.Popen([sys.executable, os.path.abspath(__file__)] + args + ['--seed', str(a.seed + w), '--workers', '1', '--quiet'], start_new_session=True) for w in range(a.workers)]
        limit = time.time() + a.minutes * 60 + 120
        for q in procs:
            try: q.wait(max(1, limit - time.time()))
            except subprocess.TimeoutExpired: os.killpg(q.pid, signal.SIGKILL); q.wait(); print('worker', q.pid, 'was late')
    else:
        w = Worker(a); w.loop(); w.save()
    if not a.quiet: print(total(a.out))

if __name__ == '__main__':
    main()
