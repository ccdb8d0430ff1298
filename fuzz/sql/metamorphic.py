"""Queries that have the same answer as another one, whatever that is."""

def reordered(q):
    """The joins of a query in another order: the first two sides change places."""
    if not q.joins or q.raw: return None
    word, _, (src, on), _ = q.joins[0]
    back = {'JOIN': 'JOIN', 'LEFT JOIN': 'RIGHT JOIN', 'RIGHT JOIN': 'LEFT JOIN', 'FULL JOIN': 'FULL JOIN'}[word]
    base = q.base if q.base.endswith(' f') else q.base + ' f'
    return q.core(joins=' '.join(['%s %s %s ON %s' % (src, back, base, on)] + [j[3] for j in q.joins[1:]]))

def in_thirds(q, p):
    """Ternary logic partitioning: the rows for which `p` is true, false and null are all rows."""
    if q.raw or q.order or q.wrap or q.having or any(' OVER (' in x for x in q.select): return None
    thirds = [q.core(extra='(%s)%s' % (p, test)) for test in (' IS TRUE', ' IS FALSE', ' IS NULL')]
    thirds[1] = q.core(extra='(NOT (%s))' % p)
    if q.distinct: return ' UNION '.join(thirds)
    if q.merges and not q.group and not all(q.merges): return None
    if not q.merges: return ' UNION ALL '.join(thirds)
    outer = ', '.join(('%s(u.o%d)' % (m, i) if m else 'u.o%d' % i) + ' AS o%d' % i for i, m in enumerate(q.merges))
    keys = ', '.join('u.o%d' % i for i, m in enumerate(q.merges) if not m)
    return 'SELECT %s FROM (%s) u%s' % (outer, ' UNION ALL '.join(thirds), ' GROUP BY ' + keys if keys else '')

def counted(q, p):
    """NoREC: the rows of a query that meet `p`, counted by a filter and by a projection. Returns both."""
    if q.raw or q.order or q.wrap or q.group or q.distinct: return None
    rows = ' '.join([q.base] + [j[3] for j in q.joins])
    where = ' AND '.join(q.where)
    one = 'SELECT count(*) AS o0 FROM %s WHERE %s' % (rows, ' AND '.join(q.where + [p]))
    two = 'SELECT coalesce(sum(CASE WHEN u.p THEN 1 ELSE 0 END), 0) AS o0 FROM (SELECT %s AS p FROM %s%s) u' % (p, rows, ' WHERE ' + where if where else '')
    return one, two

def variants(q, p, rng, folder):
    """(name, statements before it, SQL) of queries with the answer of `q`, rows in any order. `p` is any condition on its columns."""
    sql, n = q.sql(), rng.randrange(10**9)
    out = [('cte', [], sql if sql.startswith('WITH') else 'WITH q AS (%s) SELECT * FROM q' % sql),
           ('view', ['CREATE VIEW v%d AS %s' % (n, sql)], 'SELECT * FROM v%d' % n),
           ('copy', ["COPY (%s) TO '%s/c%d.vectile' STORED AS VECTILE OPTIONS (replace true)" % (sql, folder, n), "CREATE EXTERNAL TABLE c%d STORED AS VECTILE LOCATION '%s/c%d.vectile'" % (n, folder, n)], 'SELECT * FROM c%d' % n),
           ('limit', [], 'SELECT * FROM (%s) z LIMIT 1000000000' % sql)]
    if p and (third := in_thirds(q, p)): out += [('thirds', [], third)] * 3
    if not q.wrap and not q.order and (other := reordered(q)): out += [('reordered', [], other)] * 2
    if q.wrap and q.joins: out += [('reordered', [], q.wrap.replace('@@', reordered(q)))] * 2
    return out
