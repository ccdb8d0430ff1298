"""Compares the rows of two answers."""
import os
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from columns import raw_value


def norm_col(a):
    """A chunked array as something sortable and comparable, exactly."""
    t = a.type
    a = a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a
    if isinstance(a, pa.ChunkedArray): a = pa.concat_arrays(a.chunks) if a.num_chunks else pa.array([], t)
    if pa.types.is_dictionary(t): a = a.cast(t.value_type); t = a.type
    if pa.types.is_large_string(t) or str(t) == 'string_view' or pa.types.is_string(t): return a.cast(pa.large_string())
    if pa.types.is_large_binary(t) or str(t) == 'binary_view' or pa.types.is_binary(t): return a.cast(pa.large_binary())
    if pa.types.is_floating(t):
        f = np.asarray(a.fill_null(0) if a.null_count else a).astype(np.float64 if t != pa.float32() else np.float32)
        i = f.view(np.int32 if f.dtype == np.float32 else np.int64).astype(np.int64)
        i[np.isnan(f)] = 2**63 - 1
        return pa.array(i, mask=np.asarray(a.is_null()) if a.null_count else None)
    if pa.types.is_timestamp(t) or pa.types.is_duration(t) or pa.types.is_time64(t): return a.view(pa.int64())
    if pa.types.is_time32(t) or pa.types.is_date32(t): return a.view(pa.int32())
    if pa.types.is_nested(t): return pa.array([repr(x) for x in a.to_pylist()], type=pa.large_string())
    if pa.types.is_null(t): return pa.array([None] * len(a), pa.int8())
    return a

def type_name(t):
    s = str(t)
    if pa.types.is_dictionary(t): s = str(t.value_type)
    return {'large_string': 'string', 'string_view': 'string', 'large_binary': 'binary', 'binary_view': 'binary'}.get(s, s)

def floats_of(a):
    a = a.combine_chunks()
    if isinstance(a, pa.ChunkedArray): a = pa.concat_arrays(a.chunks) if a.num_chunks else pa.array([], a.type)
    nulls = np.asarray(a.is_null())
    f = np.asarray(a.cast(pa.float64()).fill_null(0.0)) if len(a) else np.zeros(0)
    return f, nulls

def compare(fa, fb, tags, mag=None):
    """Result files of oracle and subject. Returns (verdict, text): equal, tolerance, zero, nanminmax, schema, rows, values."""
    ea, eb = os.path.exists(fa), os.path.exists(fb)
    a = pq.read_table(fa) if ea else None
    b = pq.read_table(fb) if eb else None
    na, nb = (len(a) if ea else 0), (len(b) if eb else 0)
    if na == 0 and nb == 0 and (not ea or not eb): return 'equal', ''
    if na != nb: return 'rows', 'oracle %d rows, subject %d rows' % (na, nb)
    ta, tb = [type_name(f.type) for f in a.schema], [type_name(f.type) for f in b.schema]
    if ta != tb: return 'schema', 'types %s and %s' % (ta, tb)
    if na == 0: return 'equal', ''
    exact = [i for i in range(a.num_columns) if tags[i] == 'exact' or not pa.types.is_floating(a.schema.field(i).type)]
    fuzzy = [i for i in range(a.num_columns) if i not in exact]
    def prep(t):
        cols = {('c%d' % i): norm_col(t.column(i)) for i in exact}
        x = pa.table(cols) if cols else None
        keys = [('c%d' % i, 'ascending') for i in exact]
        order = pc.sort_indices(x, sort_keys=keys) if cols else pa.array(np.arange(len(t)))
        return (x.take(order) if cols else None), order
    xa, oa = prep(a); xb, ob = prep(b)
    if xa is not None and not xa.equals(xb):
        for i in exact:
            ca, cb = xa.column('c%d' % i), xb.column('c%d' % i)
            if not ca.equals(cb):
                la, lb = ca.to_pylist(), cb.to_pylist()
                bad = [j for j in range(na) if la[j] != lb[j]]
                def of(t, order):                  # pyarrow takes no rows of views
                    c = t.column(i)
                    return (c.cast(type_name(c.type)) if str(c.type).endswith('_view') else c).take(order)
                va, vb = of(a, oa), of(b, ob)
                def show(v, j):
                    s = v[j]
                    return repr(raw_value(s)) if not pa.types.is_temporal(s.type) else '%s:%s' % (s.type, raw_value(s))
                d = '; '.join('%s | %s' % (show(va, j), show(vb, j)) for j in bad[:4])
                return 'values', 'column %d (%s), %d of %d rows differ (sorted): %s' % (i, ta[i], len(bad), na, d)
        return 'values', 'rows differ'
    verdict = 'equal'
    if fuzzy:
        if xa is not None and len(exact):
            pass
        for i in fuzzy:
            va, za = floats_of(a.column(i).take(oa)); vb, zb = floats_of(b.column(i).take(ob))
            if xa is None or na > 1:           # ties among exact columns: sort within by value
                if xa is None: s, u = np.argsort(va), np.argsort(vb); va, za, vb, zb = va[s], za[s], vb[u], zb[u]
            if not np.array_equal(za, zb): return 'values', 'column %d: nulls differ' % i
            same = (va.view(np.int64) == vb.view(np.int64)) | (np.isnan(va) & np.isnan(vb)) | za
            if same.all(): continue
            bad = np.nonzero(~same)[0]
            x, y = va[bad], vb[bad]
            if tags[i] == 'fmm':
                if (x == y).all(): verdict = 'zero' if verdict == 'equal' else verdict; continue
                nn = np.isnan(x) | np.isnan(y)
                if nn[~(x == y)].all(): verdict = 'nanminmax'; continue
                if MM_NAN[0]: verdict = 'nanminmax'; continue
                return 'values', 'column %d (min/max): %s' % (i, [(float(p), float(q)) for p, q in zip(x[:4], y[:4])])
            with np.errstate(all='ignore'):
                ok = np.abs(x - y) <= 1e-9 * np.maximum(np.abs(x), np.abs(y))
                if not ok.all() and mag is not None:
                    m = mag(i)
                    if m is not None and len(m) == na:
                        ok |= np.abs(x - y) <= 1e-10 * np.abs(m[bad]) + 1e-300
                        if ok.all(): verdict = 'magnitude'; continue
            if not ok.all():
                k = np.nonzero(~ok)[0][:4]
                return 'fsum', 'column %d (float sum): %s' % (i, [(float(x[j]), float(y[j])) for j in k])
            if verdict == 'equal': verdict = 'tolerance'
    return verdict, ''

MM_NAN = [False]
