-- Pack numbers: as integers over a power of ten in byte planes if they restore the values to the bit, else unchanged.
-- tables/samples.sql describes the form.
CREATE OR REPLACE FUNCTION plant.pack_numbers(numbers float8[]) RETURNS plant.packed_numbers
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    p plant.samples_packed;
BEGIN
    p.n := cardinality(numbers);
    p.start := 'epoch';
    p.step := 1;
    p.unit := 1;
    p := plant.pack_values(p, numbers);
    RETURN ROW(p.base, p.divisor, p.single, p.v0, p.v1, p.v2, p.v3, p.float4s, p.float8s)::plant.packed_numbers;
END
$$;
