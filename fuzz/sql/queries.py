"""Expressions and queries over a set of tables."""
import copy, random, re
import pyarrow as pa

from columns import Col, quote


TEXT_FUNCTIONS = [
    'substr({}, 1, 2)', 'upper({})', 'reverse({})', "coalesce({}, 'none')", "nullif({}, '')", "concat({}, '!')",
    "(CASE WHEN {} LIKE '%a%' THEN 'yes' ELSE 'no' END)", "regexp_replace({}, '[aeiou]+', '*')", "split_part({}, ' ', 1)",
]


class N:
    """A node: a format with {} for each child; cls is its SQL class; absfmt is for error bounds of float sums."""
    __slots__ = ('fmt', 'kids', 'cls', 'absfmt')
    def __init__(self, fmt, *kids, cls='', absfmt=None):
        self.fmt, self.kids, self.cls, self.absfmt = fmt, list(kids), cls, absfmt
    def sql(self, mag=False):
        f = self.absfmt if mag and self.absfmt else self.fmt
        if not self.kids:
            return f
        out, i = [], 0
        parts = f.split('{}')
        for j, p in enumerate(parts):
            out.append(p)
            if j < len(parts) - 1:
                out.append(self.kids[j].sql(mag))
        return ''.join(out)
    def walk(self, path=()):
        yield path, self
        for i, k in enumerate(self.kids):
            yield from k.walk(path + (i,))

def lit(s, cls=''):
    return N(s.replace('{}', '{ }'), cls=cls)

class Q:
    def __init__(self):
        self.select, self.tags, self.frm, self.joins, self.where, self.group, self.having = [], [], '', [], [], [], []
        self.distinct = False; self.limit = None; self.outer = None; self.kind = ''; self.outer_tags = None; self.union = None
        self.nan = False
    def core(self, mag=False):
        sel = ', '.join('%s AS o%d' % (s.sql(mag), i) for i, s in enumerate(self.select))
        s = 'SELECT %s%s FROM %s' % ('DISTINCT ' if self.distinct else '', sel, self.frm)
        for j in self.joins: s += ' ' + j.sql(mag)
        if self.where: s += ' WHERE ' + ' AND '.join(w.sql(mag) for w in self.where)
        if self.group: s += ' GROUP BY ' + ', '.join(x.sql(mag) for x in self.group)
        if self.having: s += ' HAVING ' + ' AND '.join(x.sql(mag) for x in self.having)
        return s
    def sql(self, mag=False):
        s = self.core(mag)
        if self.union is not None: s = "SELECT * FROM (SELECT 0 AS b, u0.* FROM (%s) u0 UNION ALL SELECT 1 AS b, u1.* FROM (%s) u1) u" % (s, self.union.core(mag))
        if self.limit:
            cols = [i for i, t in enumerate(self.tags) if t == 'exact']
            s += ' ORDER BY ' + ', '.join('%d%s' % (i + 1, d) for i, d in zip(cols, self.limit[2])) + ' LIMIT %d' % self.limit[0] + (' OFFSET %d' % self.limit[1] if self.limit[1] else '')
        if self.outer: s = self.outer.replace('@@', s)
        return s
    def all_tags(self):
        if self.outer: return self.outer_tags
        return (['exact'] if self.union is not None else []) + self.tags

class Gen:
    def __init__(self, set, seed):
        self.set, self.rng = set, random.Random(seed)
        self.fuse = False                     # only what can be fused on a GPU
        self.share = .75 if set.args.mode == 'gpu' else .4
        self.tables = {t.name: t for t in set.tables}
    # literals and leaves
    def lit_of(self, c):
        rng = self.rng
        if rng.random() < .02: return lit('NULL')
        s = rng.choice(c.samples)
        if c.cls == 'date' and rng.random() < .1: s = s.replace('DATE ', '')
        if c.cls == 'int' and rng.random() < .06: s = rng.choice(['%s.5' % s.strip('()'), "CAST(%s AS DOUBLE)" % s, "'%s'" % s.strip('()'), "CAST(%s AS DECIMAL(22,1))" % s])
        return lit(s)
    def by(self, scope, *classes, calm=False):
        return [c for c in scope if c.cls in classes and not (calm and c.wild)]
    def col(self, c): return lit(c.ref, c.cls)
    # numbers
    def num(self, scope, depth=1, cls=None):
        """(node, class, wild)"""
        rng = self.rng
        cs = self.by(scope, *(cls or ('int', 'float', 'dec')))
        if not cs: return lit(str(rng.randint(-5, 100)), 'int'), 'int', False
        c = rng.choice(cs); n, k, w = self.col(c), c.cls, c.wild or (c.cls == 'float' and max(c.nums or [0]) > 1e12)
        if depth <= 0 or rng.random() < .35: return n, k, w
        r = rng.random()
        if self.fuse and (.86 <= r < .94 or r >= .97): r = rng.random() * .8
        if r < .25:
            m, k2, w2 = self.num(scope, depth - 1, (k,)); op = rng.choice(['+', '-', '*'])
            k = 'float' if k2 == 'float' else k
            return N('({} %s {})' % op, n, m, cls=k), k, w or w2 or (k == 'float' and op == '*' and depth > 1)
        if r < .5:
            l = rng.choice(['1', '2', '3', '7', '10', '100', '1000', '-1', '65536', '2147483647', '1000000007'])
            if k == 'float': l = rng.choice(['0.5', '1.1', '2.0', '-3.25', '100'])
            if k == 'dec': l = rng.choice(["1", "2", "CAST(1.05 AS DECIMAL(4,2))", "CAST('0.1' AS DECIMAL(2,1))", '100'])
            op = rng.choice(['+', '-', '*', '*'])
            return (N('({} %s (%s))' % (op, l), n, cls=k) if rng.random() < .7 else N('((%s) %s {})' % (l, op), n, cls=k)), k, w
        if r < .6 and k == 'int':
            return N('({} %s %d)' % (rng.choice(['%', '/', '%']), rng.choice([2, 3, 7, 10, 100, 1000, 4096, -3])), n, cls='int'), 'int', w
        if r < .65 and k == 'float': return N('({} / %s)' % rng.choice(['3.0', '0.1', '7', '1024.0']), n, cls='float'), 'float', w
        if r < .67 and k == 'dec': return N('({} / %s)' % rng.choice(['3', "CAST('1.5' AS DECIMAL(3,1))"]), n, cls='dec'), 'dec', w
        if r < .74: return self.case_of(scope, n, k, w)
        if r < .80:
            p = self.pred(scope, 0); m, k2, w2 = self.num(scope, 0, (k,)); k = 'float' if k2 == 'float' else k
            els = rng.choice([' ELSE {}', ' ELSE {}', ' ELSE 0', ''])
            kids = [p, n] + ([m] if '{}' in els else [])
            return N('(CASE WHEN {} THEN {}%s END)' % els, *kids, cls=k), k, w or w2
        if r < .86: return N('coalesce({}, 0)', n, cls=k), k, w
        if r < .92:
            t = rng.choice(['BIGINT', 'DOUBLE', 'DOUBLE'] if k == 'int' else ['DOUBLE']) if rng.random() < .9 else rng.choice(['INT', 'SMALLINT', 'DECIMAL(20,3)'])
            k2 = {'DOUBLE': 'float', 'DECIMAL(20,3)': 'dec'}.get(t, 'int')
            return N(('TRY_CAST' if t not in ('DOUBLE',) and rng.random() < .6 else 'CAST') + '({} AS %s)' % t, n, cls=k2), k2, w or (k == 'dec') or (k == 'int' and k2 == 'float' and True)
        if r < .94: return N('nullif({}, {})', n, self.lit_of(c), cls=k), k, w
        if r < .97 and self.dated(scope): return self.part(scope), 'int', False
        if r < .985 and self.by(scope, 'text'): return N(rng.choice(['length({})', 'strpos({}, \'a\')', 'octet_length({})']), self.col(rng.choice(self.by(scope, 'text'))), cls='int'), 'int', False
        return N('(- {})', n, cls=k), k, w
    def case_of(self, scope, n, k, w):
        """`CASE base WHEN value THEN ..`: by bits where the base is a float, unlike `=`."""
        rng = self.rng
        bases = [c for c in scope if c.cls not in ('nested', 'bin') and not (self.fuse and c.cls == 'text')]
        floats = self.by(bases, 'float')
        if not bases: return n, k, w
        b = rng.choice(floats) if floats and rng.random() < .5 else rng.choice(bases)
        same = [d for d in bases if d is not b and str(d.t) == str(b.t)]
        literals = rng.random() < .5                          # then it is a table of values for DataFusion
        fmt, kids = '(CASE {}', [self.col(b)]
        for _ in range(rng.randint(1, 4)):
            when = self.col(rng.choice(same)) if same and not literals and rng.random() < .4 else self.lit_of(b)
            if b.cls == 'float' and rng.random() < .4: when = lit(rng.choice(['0.0', '-0.0', "CAST('NaN' AS DOUBLE)"]))
            fmt += ' WHEN {} THEN {}'; kids += [when, lit(str(rng.randint(0, 9)), 'int') if literals else n]
        els = rng.choice(['', ' ELSE 0', ' ELSE 7'])
        if literals: k, w = 'int', False
        return N(fmt + els + ' END)', *kids, cls=k), k, w
    def dated(self, scope):
        """Columns that have parts: dates of any year, and timestamps of usual ones."""
        return self.by(scope, 'date') + self.by(scope, 'ts', calm=True)
    def part(self, scope):
        rng = self.rng
        c = rng.choice(self.dated(scope))
        p = rng.choice(['year', 'year', 'month', 'day', 'quarter', 'dow', 'doy', 'week'] + (['hour', 'minute', 'second'] if c.cls == 'ts' else []))
        return N("CAST(date_part('%s', {}) AS BIGINT)" % p if rng.random() < .3 else ("extract(%s FROM {})" % p if rng.random() < .5 else "date_part('%s', {})" % p), self.col(c), cls='int')
    # predicates
    def pred(self, scope, depth=2):
        rng = self.rng
        if depth > 0 and rng.random() < .55:
            r = rng.random()
            if r < .35: return N('({} AND {})', self.pred(scope, depth - 1), self.pred(scope, depth - 1), cls='bool')
            if r < .75: return N('({} OR {})', self.pred(scope, depth - 1), self.pred(scope, depth - 1), cls='bool')
            if r < .92: return N('(NOT {})', self.pred(scope, depth - 1), cls='bool')
            if r < .97: return N('({} %s)' % rng.choice(['IS TRUE', 'IS FALSE', 'IS NOT TRUE', 'IS NOT FALSE', 'IS UNKNOWN', 'IS NOT UNKNOWN']), self.pred(scope, depth - 1), cls='bool')
            return N('(CASE WHEN {} THEN {} ELSE {} END)', self.pred(scope, 0), self.pred(scope, 0), self.pred(scope, 0), cls='bool')
        return self.leaf(scope)
    def leaf(self, scope):
        rng = self.rng
        cs = [c for c in scope if c.cls not in (('nested', 'bin') if self.fuse else ('nested',))]
        if not cs: return lit('true', 'bool')
        c = rng.choice(cs); n = self.col(c); k = c.cls
        r = rng.random()
        if self.fuse and k == 'text' and .32 <= r < .4: r = .5
        op = rng.choice(['=', '<', '<=', '>', '>=', '<>', '<', '>='])
        if r < .07: return N('({} IS %sNULL)' % rng.choice(['', 'NOT ']), n, cls='bool')
        if r < .08: return lit(rng.choice(['true', 'false', '(1 = 0)', 'CAST(NULL AS BOOLEAN)']), 'bool')
        if k == 'bool':
            if r < .6: return N(rng.choice(['{}', '(NOT {})', '({} = true)', '({} IS TRUE)', '({} IS NOT FALSE)', '({} = false)', '({} < true)']), n, cls='bool')
        if r < .17:
            l = [self.lit_of(c) for _ in range(rng.choice([1, 2, 3, 5, 8] + ([] if self.fuse else [17, 40])))]
            return N('({} %sIN (%s))' % (rng.choice(['', '', 'NOT ']), ', '.join(['{}'] * len(l))), n, *l, cls='bool')
        if r < .27: return N('({} %sBETWEEN {} AND {})' % rng.choice(['', '', 'NOT ']), n, self.lit_of(c), self.lit_of(c), cls='bool')
        if r < .32: return N('({} IS %sDISTINCT FROM {})' % rng.choice(['', 'NOT ']), n, self.lit_of(c), cls='bool')
        if r < .40:
            same = [d for d in cs if d.cls == k and d is not c and (str(d.t) == str(c.t) or k in ('int', 'float', 'dec', 'text', 'date'))]
            if same: return N('({} %s {})' % rng.choice([op, op, 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM']), n, self.col(rng.choice(same)), cls='bool')
        if k == 'text' and r < .8: return self.text_pred(c)
        if k in ('int', 'float', 'dec') and r < .62:
            e, k2, _ = self.num(scope, 2)
            if rng.random() < .3: f, _, _ = self.num(scope, 1, (k2,)) if k2 in ('int', 'float', 'dec') else (None, 0, 0); return N('({} %s {})' % op, e, f, cls='bool')
            return N('({} %s {})' % op, e, self.lit_of(c), cls='bool')
        if (k == 'date' or k == 'ts' and not c.wild) and r < .6:
            s = rng.random() * (.5 if self.fuse or c.wild else 1)
            if s < .5:
                p = rng.choice(['year', 'month', 'day', 'quarter', 'dow', 'doy'])
                v = {'year': rng.choice([1992, 1998, 2009, 2011, 2013, 2020, 1970]), 'month': rng.randint(0, 13), 'day': rng.randint(1, 31), 'quarter': rng.randint(1, 4), 'dow': rng.randint(0, 6), 'doy': rng.randint(1, 366)}[p]
                return N("(date_part('%s', {}) %s %d)" % (p, op, v), n, cls='bool')
            if s < .7: return N("({} %s {} + INTERVAL '%s')" % (op, rng.choice(['3 days', '1 month', '1 year', '90 days'])), n, self.lit_of(c), cls='bool')
            if s < .9: return N("(date_trunc('%s', {}) %s {})" % (rng.choice(['month', 'year', 'day']), op), n, self.lit_of(c), cls='bool')
            if k == 'ts': return N('(CAST({} AS DATE) %s DATE \'2013-05-05\')' % op, n, cls='bool')
            return N("(CAST({} AS TIMESTAMP) %s TIMESTAMP '2011-01-01 12:00:00')" % op, n, cls='bool')
        if rng.random() < .08: return N('({} %s {})' % op, self.lit_of(c), n, cls='bool')
        return N('({} %s {})' % op, n, self.lit_of(c), cls='bool')
    def text_pred(self, c):
        rng = self.rng; n = self.col(c)
        t = rng.choice(c.texts) if getattr(c, 'texts', None) else 'x'
        t = t[:40]
        r = rng.random()
        if r < .5:
            i = rng.randrange(len(t) + 1); j = min(len(t), i + rng.randint(1, 4)); s = t[i:j]
            p = rng.choice([t[:3] + '%', '%' + s + '%', '%' + t[-3:], t[:1] + '_' + t[2:], '%', '', s, '%' + s + '%' + t[-1:], '_%', '\\%' + s])
            return N("({} %s%s %s)" % (rng.choice(['', '', 'NOT ']), rng.choice(['LIKE', 'LIKE', 'ILIKE']), quote(p)), n, cls='bool')
        if r < .6: return N("(substr({}, %d, %d) = %s)" % (rng.choice([1, 1, 2, 0]), rng.randint(0, 4), quote(t[:2])), n, cls='bool')
        if r < .7: return N('(%s({}) %s %d)' % (rng.choice(['length', 'char_length', 'octet_length']), rng.choice(['=', '<', '>=', '<>']), rng.choice([0, 1, 5, 6, 11, len(t)])), n, cls='bool')
        if r < .78: return N("(%s({}) = %s)" % ((f := rng.choice(['upper', 'lower', 'trim', 'reverse'])), quote({'upper': t.upper(), 'lower': t.lower(), 'trim': t.strip(), 'reverse': t[::-1]}[f])), n, cls='bool')
        if r < .83: return N("starts_with({}, %s)" % quote(t[:2]), n, cls='bool')
        if r < .88: return N("({} ~ %s)" % quote('^' + re.sub(r'[^A-Za-z0-9 ]', '.', t[:3])), n, cls='bool')
        if r < .92: return N("(coalesce({}, 'zz') >= %s)" % quote(t[:3]), n, cls='bool')
        if r < .95: return N("(({} || 'x') = %s)" % quote(t + 'x'), n, cls='bool')
        return N('({} %s {})' % rng.choice(['<', '>', '>=', '=']), n, self.lit_of(c), cls='bool')
    # aggregates
    def agg(self, scope):
        """(node, tag)"""
        rng = self.rng
        filt = ''
        kids = []
        f = rng.choices(['count*', 'count', 'sum', 'min', 'max', 'avg', 'countd', 'case', 'other'], [18, 12, 30, 12, 12, 12, 5, 6, 2])[0]
        flt = self.pred(scope, 1) if rng.random() < .2 else None
        if self.fuse:
            scope = [c for c in scope if c.cls not in ('text', 'bin', 'nested')]
            if f in ('countd', 'other'): f = 'sum'
        suffix = ' FILTER (WHERE {})' if flt is not None else ''
        fk = [flt] if flt is not None else []
        def done(fmt, kids, tag, absf=None): return N(fmt + suffix, *(kids + fk), cls='num', absfmt=(absf + suffix) if absf else None), tag
        cs = [c for c in scope if c.cls != 'nested']
        if f == 'count*' or not cs: return done('count(*)', [], 'exact')
        if f == 'count': return done('count({})', [self.col(rng.choice(cs)) if rng.random() < .8 else self.num(scope, 2)[0]], 'exact')
        if f == 'countd':
            c = rng.choice([c for c in cs if c.cls != 'float'] or cs); n = self.col(c)
            return done('count(DISTINCT {})', [self.of_text(n) if c.cls == 'text' and rng.random() < .4 else n], 'exact')
        if f in ('sum', 'avg', 'case'):
            e, k, w = self.num(scope, rng.choice([0, 0, 1, 2]))
            if f == 'case': e = N('(CASE WHEN {} THEN {} ELSE 0 END)', self.pred(scope, 1), e, cls=k); f = 'sum'
            if k == 'float' or f == 'avg':
                if w: return done('count({})', [e], 'exact')
                if k == 'dec': return done(f + '({})', [e], 'exact')
                return done(f + '({})', [e], 'fsum', f + '(abs(CAST({} AS DOUBLE)))')
            return done(f + '({})', [e], 'fsum', f + '(abs(CAST({} AS DOUBLE)))')      # exact unless its type is a float
        if f in ('min', 'max'):
            if rng.random() < .6:
                c = rng.choice(cs); n = self.col(c)
                return done(f + '({})', [self.of_text(n) if c.cls == 'text' and rng.random() < .3 else n], 'fmm' if c.cls == 'float' else 'exact')
            e, k, w = self.num(scope, 2)
            return done(f + '({})', [e], 'fmm' if k == 'float' else 'exact')
        b = self.pred(scope, 1)
        r = rng.random()
        if r < .5: return done(rng.choice(['bool_and({})', 'bool_or({})']), [b], 'exact')
        ints = self.by(scope, 'int')
        if ints: return done(rng.choice(['bit_xor({})', 'sum(DISTINCT {})', 'bit_and({})']), [self.col(rng.choice(ints))], 'exact')
        return done('count(*)', [], 'exact')
    def of_text(self, n):
        """A function of text that is text."""
        return N(self.rng.choice(TEXT_FUNCTIONS), n)
    def group_key(self, scope):
        rng = self.rng
        cs = [c for c in scope if c.cls not in ('nested', 'float') and not (c.name in ('id',) and rng.random() < .9)]
        if rng.random() < .03 and not self.fuse: cs = [c for c in scope if c.cls == 'float'] or cs
        if self.fuse:
            low = [c for c in cs if c.cls != 'bin' and not (c.cls == 'text' and len(set(getattr(c, 'texts', None) or [])) > 8 and c.ref.startswith('f.') and rng.random() < .8)]
            cs = low or cs
        if not cs: return lit('1')
        c = rng.choice(cs); n = self.col(c); r = rng.random()
        if r < .62 or (self.fuse and c.cls == 'text' and c.ref.startswith('f.')): return n
        if c.cls == 'int':
            return N(rng.choice(['({} % 7)', '({} / 10)', '({} + 1)', '({} % 100)', '({} > 5)', '({} IS NULL)', 'coalesce({}, 0)', 'CAST({} AS BIGINT)', '({} * 3 - 1)', '({} & 12)', '({} >> 3)', "(CASE WHEN {} > 10 THEN 1 WHEN {} IS NULL THEN 2 ELSE 3 END)".replace('{}', c.ref)]).replace('{}', '{}') , n) if True else n
        if c.cls == 'date' and c.wild: return N(rng.choice(["date_part('year', {})", "date_part('month', {})", "date_part('doy', {})", '({} IS NULL)']), n)
        if c.cls in ('date', 'ts') and not c.wild:
            return N(rng.choice(["date_part('year', {})", "extract(month FROM {})", "date_trunc('month', {})", "date_part('dow', {})", '({} IS NULL)']), n)
        if c.cls == 'text': return N(rng.choice(TEXT_FUNCTIONS + ['length({})', '({} IS NULL)', "({} LIKE 'a%')"]), n)
        if c.cls == 'dec': return N(rng.choice(['({} + 1)', '({} > 0)', 'coalesce({}, 0)', '({} * 2)']), n)
        if c.cls == 'bool': return N(rng.choice(['(NOT {})', '({} IS TRUE)', 'coalesce({}, false)']), n)
        return n
    # relations
    def dim_source(self, d, alias):
        """(sql after FROM/JOIN, columns in scope, key sql)"""
        rng = self.rng
        cols = [c.at(alias) for c in d.cols]
        r = rng.random()
        if r < .62: return '%s %s' % (d.name, alias), cols, alias + '."k"'
        own = [c.at('i') for c in d.cols]
        p = self.pred(own, 1).sql()
        if r < .82: return '(SELECT * FROM %s i WHERE %s) %s' % (d.name, p, alias), cols, alias + '."k"'
        if r < .88:
            keep = [c for c in d.cols if c.name == 'k'] + rng.sample(d.cols[1:], rng.randint(0, len(d.cols) - 1))
            return '(SELECT DISTINCT %s FROM %s i) %s' % (', '.join('i."%s"' % c.name for c in keep), d.name, alias), [c.at(alias) for c in keep], alias + '."k"'
        if r < .93 or self.fuse and r < .97:
            return self.joined_source(d, alias, cols)
        if r < .95:
            n = Col('n', pa.int64()); n.samples = ['1', '2', '0']; n.nums = [1]
            x = copy.copy(rng.choice(d.cols[1:])); name = x.name; x.name = 'x'
            if x.cls in ('float', 'nested', 'bool', 'bin'): x = copy.copy(d.cols[0]); name = 'k'; x.name = 'x'
            if x.cls in ('bool',): return '%s %s' % (d.name, alias), cols, alias + '."k"'
            return '(SELECT i."k" AS "k", count(*) AS "n", max(i."%s") AS "x" FROM %s i GROUP BY i."k") %s' % (name, d.name, alias), [d.cols[0].at(alias), n.at(alias), x.at(alias)], alias + '."k"'
        others = [o for o in self.set.tables if o.name != 'f' and o is not d and not o.dup and str(o.key[1]) == str(d.key[1])]
        if others:
            o = rng.choice(others)
            keep = rng.choice(o.cols); kk = copy.copy(keep); kk.name = 'z'
            return '(SELECT i.*, z."%s" AS "z" FROM %s i %s JOIN %s z ON i."k" = z."k") %s' % (keep.name, d.name, rng.choice(['INNER', 'LEFT']), o.name, alias), cols + [kk.at(alias)], alias + '."k"'
        return '%s %s' % (d.name, alias), cols, alias + '."k"'
    def joined_source(self, d, alias, cols):
        """A dimension that is itself a join of two or three, with a condition between any of their columns."""
        rng = self.rng
        others = [o for o in self.set.tables if o.name != 'f' and not o.dup and str(o.key[1]) == str(d.key[1])] or [d]
        sides = {'i': d, 'y': rng.choice(others), 'z': rng.choice(others)}
        if rng.random() < .4: del sides['y']
        columns = [c.at(a) for a, t in sides.items() for c in t.cols if c.cls not in ('nested', 'bin')]
        pairs = [(c, e) for c in columns for e in columns if c.ref[0] != e.ref[0] and str(c.t) == str(e.t)]
        conditions = []
        for _ in range(rng.choice([1, 1, 2])):
            if not pairs: break
            c, e = rng.choice(pairs)
            conditions.append('%s %s %s' % (c.ref, rng.choice(['<', '<=', '>', '>=', '<>', 'IS DISTINCT FROM']), e.ref))
        if rng.random() < .3: conditions.append(self.pred(columns, 0).sql())
        last = sides['z']; keep = rng.choice(last.cols); kk = copy.copy(keep); kk.name = 'z'
        word = 'JOIN' if self.fuse or rng.random() < .7 else 'LEFT JOIN'
        y = ' JOIN %s y ON i."k" = y."k"' % sides['y'].name if 'y' in sides else ''
        on = ' AND '.join(['i."k" = z."k"'] + conditions)
        sql = '(SELECT i.*, z."%s" AS "z" FROM %s i%s %s %s z ON %s) %s' % (keep.name, d.name, y, word, last.name, on, alias)
        return sql, cols + [kk.at(alias)], alias + '."k"'
    def further(self, alias, cols):
        """Joins by columns of a dimension, one behind the other, and the columns that they add. Some have two keys."""
        rng = self.rng
        joins, added = [], []
        for step in range(rng.choice([1, 1, 2])):
            at = '%ss%d' % (alias, step)
            tables = [t for t in self.set.tables if t.name != 'f' and (not t.dup or rng.random() < .1)]
            links = [(c, t) for t in tables for c in cols + added if str(c.t) == str(t.key[1])]
            if not links: break
            c, t = rng.choice(links)
            own = [x.at(at) for x in t.cols]
            on = ['%s = %s."k"' % (c.ref, at)]
            pairs = [(x, y) for x in cols + added for y in own if str(x.t) == str(y.t) and x.cls in ('int', 'text', 'date', 'bool')]
            if pairs and rng.random() < .2: on.append('%s = %s' % tuple(x.ref for x in rng.choice(pairs)))
            joins.append('%s %s %s ON %s' % (rng.choice(['JOIN', 'JOIN', 'JOIN', 'LEFT JOIN']), t.name, at, ' AND '.join(on)))
            added += own
        return joins, added
    def second_key(self, d, alias, key, on, src, cols, fscope):
        """The condition of a join with a key more: of a dimension, or of one that is grouped by both."""
        rng = self.rng
        pairs = [(c, e) for c in fscope for e in cols if str(c.t) == str(e.t) and e.name != 'k' and c.cls in ('int', 'date', 'ts', 'dec', 'text', 'float')]
        if rng.random() < .5:
            for c, e in rng.sample(pairs, min(len(pairs), rng.choice([1, 1, 2]))): on += ' AND %s = %s' % (c.ref, e.ref)
            return on, src, cols
        own = [(c, e) for c in fscope for e in d.cols if str(c.t) == str(e.t) and e.name != 'k' and e.cls in ('int', 'date', 'dec')]
        if not own: return on, src, cols
        c, e = rng.choice(own)
        n = Col('n', pa.int64()); n.samples = ['1', '2', '0']; n.nums = [1]
        y = copy.copy(e); y.name = 'y'
        src = '(SELECT i."k" AS "k", i."%s" AS "y", count(*) AS "n" FROM %s i GROUP BY i."k", i."%s") %s' % (e.name, d.name, e.name, alias)
        return '%s = %s."k" AND %s."y" = %s' % (key, alias, alias, c.ref), src, [d.cols[0].at(alias), y.at(alias), n.at(alias)]
    def similar(self, q):
        """A query that differs in little from one with joins: their tables are kept from one query to the next."""
        rng = self.rng
        places = [(i, m) for i, j in enumerate(q.joins) for m in re.finditer(r'\b[iyz]\."|<=|>=|<>|[<>]| JOIN |LEFT JOIN|\b\d+\b', j.fmt)]
        if not places: return None
        c = copy.deepcopy(q); i, m = rng.choice(places); j = c.joins[i]
        t = m.group(0)
        if t[0] in 'iyz' and t.endswith('."'): new = rng.choice(re.findall(r' ([iyz]) ', j.fmt) or [t[0]]) + '."'
        elif t[0] in '<>': new = rng.choice(['<', '<=', '>', '>=', '<>'])
        elif t.isdigit(): new = str(max(0, int(t) + rng.choice([-1, 1])))
        else: new = ' LEFT JOIN ' if t == ' JOIN ' and not j.fmt[:m.start()].endswith(('LEFT', 'INNER', 'RIGHT', 'FULL')) else t
        j.fmt = j.fmt[:m.start()] + new + j.fmt[m.end():]
        return c if c.sql() != q.sql() else None
    def query(self):
        rng = self.rng
        f = self.tables['f']
        q = Q(); self.fuse = rng.random() < self.share
        base = f if rng.random() < .93 or len(self.set.tables) == 1 else rng.choice(self.set.tables)
        q.frm = base.name + ' f'
        scope = [c.at('f') for c in base.cols]
        q.kind = rng.choices(['agg', 'group', 'star', 'rows', 'distinct'], [16, 24, 36 if base is f and f.links else 0, 16, 8])[0]
        if rng.random() < .08 and base.rows <= 100000:
            branch = lambda: 'SELECT u.* FROM %s u WHERE %s' % (base.name, self.pred([c.at('u') for c in base.cols], 1).sql())
            q.frm = '(%s) f' % ' UNION ALL '.join(branch() for _ in range(rng.choice([2, 2, 3])))
        dims = []
        joined = False
        fscope = list(scope)
        if base is f and q.kind == 'star' and rng.random() < .1 and f.rows <= 100000: return self.added(q, base)
        if base is f and f.links and (q.kind == 'star' or rng.random() < .12):
            links = rng.sample(f.links, rng.randint(1, len(f.links)))
            exploded = False
            for i, (fk, d) in enumerate(links):
                a = 'd%d_' % i
                kind = rng.choices(['inner', 'left', 'comma', 'exists', 'notexists', 'in', 'notin', 'right', 'full', 'self'], [42, 16, 6, 9, 6, 8, 4, 3, 1, 2])[0]
                key = 'f."%s"' % fk
                fcol = [c for c in base.cols if c.name == fk][0]
                if kind in ('exists', 'notexists', 'in', 'notin'):
                    inner = [c.at(a) for c in d.cols]
                    p = ' AND ' + self.pred(inner, 1).sql() if rng.random() < .6 else ''
                    pairs = [(c, e) for c in fscope for e in inner if str(c.t) == str(e.t) and c.cls in ('int', 'date', 'ts', 'dec', 'text', 'bool', 'float')]
                    for _ in range(rng.choice([0, 0, 1, 1, 2])):      # beside the key, over both sides
                        if pairs and kind in ('exists', 'notexists'): c, e = rng.choice(pairs); p += ' AND %s %s %s' % (e.ref, rng.choice(['<>', '<>', '<', '<=', '>', '>=', '=']), c.ref)
                    if kind in ('exists', 'notexists') and rng.random() < .25: p += ' AND ' + self.pred(inner + fscope, 1).sql()
                    if kind in ('exists', 'notexists'): w = '%sEXISTS (SELECT 1 FROM %s %s WHERE %s."k" = %s%s)' % ('NOT ' if kind == 'notexists' else '', d.name, a, a, key, p)
                    else: w = '%s %sIN (SELECT %s."k" FROM %s %s WHERE true%s)' % (key, 'NOT ' if kind == 'notin' else '', a, d.name, a, p)
                    if rng.random() < .15: w = '(%s OR %s)' % (w, self.pred(fscope, 0).sql())
                    q.where.append(lit(w, 'bool')); continue
                if self.fuse and kind in ('right', 'full', 'self'): kind = 'inner'
                if d.dup and (exploded or f.rows > 100000): continue
                exploded |= d.dup
                src, cols, k = self.dim_source(d, a)
                if kind == 'self':
                    if base.rows > 20000: continue
                    src, cols, k, key = 'f ' + a, [c.at(a) for c in base.cols], a + '."id"', 'f."id"'; kind = rng.choice(['inner', 'left'])
                on = '%s = %s' % ((key, k) if rng.random() < .6 else (k, key))
                if kind in ('inner', 'comma', 'left') and rng.random() < .25:
                    on, src, cols = self.second_key(d, a, key, on, src, cols, fscope)
                if self.fuse and rng.random() < .9: pass
                elif rng.random() < .04: on = on.replace('=', 'IS NOT DISTINCT FROM')
                elif rng.random() < .05 and fcol.cls == 'int': on = '%s + 1 = %s' % (key, k)
                if rng.random() < .12 and not (self.fuse and kind != 'inner'): on += ' AND ' + self.pred(cols if rng.random() < .6 else cols + fscope, 1).sql()
                further = []
                if kind in ('inner', 'comma', 'left') and rng.random() < (.4 if self.fuse else .25):
                    further, of_further = self.further(a, cols)
                    cols = cols + of_further
                if kind == 'comma':
                    q.joins.append(lit(' '.join([', %s' % src] + further))); q.where.append(lit('(%s)' % on, 'join'))
                else:
                    word = {'inner': 'JOIN', 'comma': 'JOIN', 'left': 'LEFT JOIN', 'right': 'RIGHT JOIN', 'full': 'FULL JOIN'}[kind]
                    q.joins.insert(sum(1 for j in q.joins if not j.fmt.startswith(',')), lit(' '.join(['%s %s ON %s' % (word, src, on)] + further)))
                scope += cols
                dims += cols
                joined = True
        heavy = q.kind == 'rows' or q.kind == 'distinct'
        for _ in range(rng.choices([0, 1, 2, 3], [22, 45, 23, 10])[0]):
            sc = scope if rng.random() < .5 else (dims if dims and rng.random() < .6 else fscope)
            q.where.append(self.pred(sc, rng.choice([0, 0, 1, 2])))
        if rng.random() < .06:
            ints = self.by(fscope, 'int', 'date', 'dec')
            if ints:
                c = rng.choice(ints); o = rng.choice(self.set.tables); oc = [x for x in o.cols if x.cls == c.cls]
                if oc: q.where.append(lit('(%s %s (SELECT %s(s."%s") FROM %s s))' % (c.ref, rng.choice(['>', '<=', '=', '<>']), rng.choice(['min', 'max']), rng.choice(oc).name, o.name), 'bool'))
        if rng.random() < .05:
            c = rng.choice([c for c in fscope if c.cls not in ('nested', 'float')]); o = [(t, x) for t in self.set.tables for x in t.cols if str(x.t) == str(c.t)]
            if o:
                t, x = rng.choice(o); r = 1 if t.rows > 4000 else 0             # the hash join is quadratic in duplicates
                q.where.append(lit('(%s %sIN (SELECT %ss."%s" FROM %s s%s))' % (c.ref, rng.choice(['', 'NOT ']), 'DISTINCT ' if r else '', x.name, t.name, rng.choice(['', ' LIMIT 0', ' WHERE s."%s" IS NOT NULL' % x.name])), 'bool'))
        if q.kind in ('group', 'star') and not (q.kind == 'star' and rng.random() < .12):
            ks = rng.choices([1, 2, 3, 4], [45, 32, 16, 7])[0]
            for _ in range(ks):
                k = self.group_key(dims if dims and rng.random() < .65 else scope)
                if any(k.sql() == g.sql() for g in q.group): continue
                q.group.append(k); q.select.append(k); q.tags.append('exact')
        if q.kind in ('agg', 'group', 'star'):
            for _ in range(rng.choices([0, 1, 2, 3, 4, 6], [6 if q.group else 0, 30, 30, 18, 10, 6])[0]):
                n, t = self.agg(scope if rng.random() < .5 else fscope); q.select.append(n); q.tags.append(t)
            if not q.select: q.select.append(lit('count(*)')); q.tags.append('exact')
            if q.group and rng.random() < .1:
                n, t = self.agg(fscope)
                if t == 'exact': q.having.append(N(rng.choice(['({} IS NOT NULL)', '({} > 3)', '({} <= 100)', '({} <> 1)', '({} > (SELECT avg(s."id") FROM f s))']), n))
            if q.group and rng.random() < .15: q.having.append(N(rng.choice(['(count(*) > %d)' % rng.choice([0, 1, 10, 100]), '(count(*) %% 2 = 0)' % ()])))
            if q.group and rng.random() < .2 and not any(t == 'fmm' for t in q.tags):
                q.limit = self.limit(q)
                own = [i for i in range(len(q.group), len(q.select)) if q.tags[i] == 'exact']
                if own and rng.random() < .7:                      # ordered by an aggregate
                    i = rng.choice(own); q.select.insert(0, q.select.pop(i)); q.tags.insert(0, q.tags.pop(i))
        elif q.kind == 'distinct':
            q.distinct = True
            for _ in range(rng.randint(1, 3)): q.select.append(self.group_key(scope)); q.tags.append('exact')
        else:
            all_ = [c for c in scope]
            for c in rng.sample(all_, min(len(all_), rng.randint(1, 5))): q.select.append(self.col(c)); q.tags.append('exact')
            if rng.random() < .5: q.select.append(self.num(scope, 2)[0]); q.tags.append('exact')
            if rng.random() < .2: q.select.append(self.pred(scope, 1)); q.tags.append('exact')
            if rng.random() < .12:                                # rows are any, their number is not
                k = rng.choice([1, 10, 1000, 1024, 5000])
                q.outer = 'SELECT count(*) AS p0 FROM (@@ LIMIT %d) s' % k; q.outer_tags = ['exact']
            elif rng.random() < .3 and not any(c.cls == 'nested' and c.ref in [s.sql() for s in q.select] for c in all_):
                q.limit = self.limit(q)
        if rng.random() < .1 and not q.limit and not q.outer:
            q2 = Q(); q2.__dict__.update({k: copy.copy(v) for k, v in q.__dict__.items()})
            dropped = q.where[-1:] if q.where and q.where[-1].cls != 'join' else []      # without it, there is a cross join
            q2.where = q.where[:len(q.where) - len(dropped)] + [self.pred(scope, 1)]
            if not q.distinct: q.union = q2
        elif rng.random() < .14 and not q.union and not q.outer:
            ex = [i for i, t in enumerate(q.tags) if t == 'exact']
            r = rng.random()
            if ex and q.kind in ('group', 'star', 'distinct'):
                if r < .5: q.outer = 'SELECT count(*) AS p0, count(s.o%d) AS p1, max(s.o%d) AS p2, min(s.o%d) AS p3 FROM (@@) s' % (ex[0], ex[-1], ex[0]); q.outer_tags = ['exact', 'exact', 'fmm', 'fmm']
                elif r < .85:
                    key, other = rng.choice(ex), rng.choice(ex)
                    w = rng.choice(['', '', ' WHERE s.o%d IS NOT NULL' % other, ' WHERE s.o%d IS NULL OR s.o%d = s.o%d' % (key, other, other)])
                    q.outer = 'SELECT s.o%d AS p0, count(*) AS p1, count(s.o%d) AS p2, max(s.o%d) AS p3 FROM (@@) s%s GROUP BY s.o%d' % (key, other, other, w, key); q.outer_tags = ['exact', 'exact', 'exact', 'fmm']
                else: q.outer = 'SELECT f.id AS p0, s.o%d AS p1 FROM f JOIN (@@) s ON f.id = s.o%d' % (ex[0], ex[-1]) if False else 'SELECT s.o%d AS p0, rank() OVER (ORDER BY s.o%d) AS p1 FROM (@@) s' % (ex[0], ex[0]); q.outer_tags = ['exact', 'exact']
        q.nan = any(c.nan for c in scope)
        return q
    def added(self, q, base):
        """What an outer join adds to rows, of which it may add many."""
        rng = self.rng
        fk, d = rng.choice(base.links)
        own, cols = [c.at('f') for c in base.cols], [c.at('d0_') for c in d.cols]
        q.kind = 'group'
        q.joins.append(lit('LEFT JOIN %s d0_ ON f."%s" = d0_."k"' % (d.name, fk)))
        if rng.random() < .5: q.where.append(self.pred(own, 1))
        for _ in range(rng.randint(1, 2)):
            k = self.group_key(own)
            if not any(k.sql() == g.sql() for g in q.group): q.group.append(k); q.select.append(k); q.tags.append('exact')
        cs = [c for c in cols if c.cls not in ('nested', 'float')]
        for _ in range(rng.randint(1, 3)):
            c = rng.choice(cs); f = rng.choice(['count', 'count', 'min', 'max'] + ['sum'] * 3 * (c.cls in ('int', 'dec')))
            q.select.append(N(f + '({})', self.col(c), cls='num')); q.tags.append('fsum' if f == 'sum' else 'exact')
        if rng.random() < .3: q.outer = 'SELECT s.o%d AS p0, count(*) AS p1 FROM (@@) s GROUP BY s.o%d' % (len(q.group), len(q.group)); q.outer_tags = ['exact', 'exact']
        q.nan = any(c.nan for c in own + cols)
        return q
    def limit(self, q):
        rng = self.rng
        return (rng.choice([0, 1, 3, 10, 100, 1000]), rng.choice([0, 0, 0, 2, 50]), [rng.choice(['', ' DESC', ' ASC NULLS FIRST', ' DESC NULLS LAST']) for _ in q.select])
