"""Joins of few long lists: each row has so many combinations that counts pass 2^32. The answer is computed."""
import os, random, time
import numpy as np
import pyarrow as pa

import shapes
from running import STATS, mk

def run_set(worker, seed):
    rng, g = random.Random(seed), np.random.default_rng(seed)
    groups = rng.choice([1, 1, 1, 2])
    # rows of the fact table for a group, and of each list: a group has 2^32 combinations, or a few more. They are of
    # few threads, or of a block, or of several
    rows, c = rng.choice([(1, 65536), (64, 8192), (64, 8192), (1024, 2048), (2048, 2048)])
    b = (1 << 32) // (rows * c) + rng.choice([0, 0, 0, 1]); rows *= groups
    tables = [('a', {'k': np.ones(rows), 'g': np.arange(rows) % groups}), ('b', {'k': np.ones(b), 'x': g.integers(-99, 99, b)}), ('c', {'k': np.ones(c), 'y': g.integers(-99, 99, c)})]
    s = shapes.ShapeSet(os.path.join(worker.work, 'products'), seed, worker.args)
    s.order = 0
    s.settings = [x for x in s.settings if 'prefer_hash_join' not in x]     # merge joins have no kernel, and take minutes
    s.tables = [shapes.Table(n, {k: pa.array(v.astype(np.int64)) for k, v in columns.items()}, 262144) for n, columns in tables]
    error = s.write()
    if error: worker.finding_of_text('products-convert', seed, error, s); return
    x, y = tables[1][1]['x'], tables[2][1]['y']
    per = rows // groups
    what = rng.choice(['count', 'count', 'max', 'sum'])
    sql = {'count': 'count(*) AS o1, max(a.k) AS o2', 'max': 'count(b.x) AS o1, max(b.x + c.y) AS o2', 'sum': 'count(*) AS o1, sum(b.x + c.y) AS o2'}[what]
    value = 1 if what == 'count' else int(x.max() + y.max()) if what == 'max' else per * int(x.sum() * c + y.sum() * b)
    grouped = rng.random() < .85
    sql = 'SELECT %s%s FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k%s' % ('a.g AS o0, ' if grouped else '', sql, ' GROUP BY a.g' if grouped else '')
    times = per * b * c
    expected = [(i, times, value) for i in range(groups)] if grouped else [(times * groups, value * groups if what == 'sum' else value)]
    if worker.args.mode != 'gpu': STATS['products: for a GPU only'] += 1; return
    dir = mk(s.dir, 'gpu')
    fast = os.environ.pop('CXX', None)                     # here it is the kernel that takes its time
    if worker.slow_cxx: os.environ['CXX'] = worker.slow_cxx
    t0 = time.time()
    r = shapes.ask(worker, s, 'gpu', [('x', sql, 'copy')], dir, hang=600)['x']
    if fast: os.environ['CXX'] = fast
    worker.say('products', seed, r[0], '%.0f s' % (time.time() - t0), sql)
    if r[0] == 'hang': STATS['products: not in time'] += 1; return
    STATS['products'] += 1
    q = shapes.Query(); q.raw = sql; q.kind = 'products'
    v = shapes.verdict(s, q, expected, r, os.path.join(dir, 'res', 'x.parquet'), False)
    if v:
        worker.sigs['%s products' % v[0]] += 1
        worker.say('FINDING products set', seed, v, sql)
        worker.finding_of_text('%s products' % v[0], seed, v[1], s, sql=sql, side='gpu')
