using System;
using System.Globalization;
using System.Linq;
using Mlp = Relaxd.Mlp;
using Odd = Relaxd.Odd;

public static class Two
{
    private static void Show(string name, long[] shape, Array data)
    {
        var numbers = data.Cast<object>().Select(
            value => Convert.ToDouble(value).ToString("R", CultureInfo.InvariantCulture));
        Console.WriteLine(string.Concat(name, string.Concat(shape.Select(extent => " " + extent)),
            ":", string.Concat(numbers.Select(number => " " + number))));
    }

    private static void Fails(Action call)
    {
        try { call(); }
        catch (Mlp.ModelException error) { Console.WriteLine(error.Code + " " + error.Message); }
        catch (Odd.ModelException error) { Console.WriteLine(error.Code + " " + error.Message); }
        catch (System.IO.IOException error) { Console.WriteLine("5 " + error.Message); }
    }

    public static void Main(string[] arguments)
    {
        float[] x = Enumerable.Range(0, (int)Mlp.Ranges.NMax * 32).Select(i => i % 32 / 32f).ToArray();
        using (Mlp.Weights weights = Mlp.Weights.Read(arguments[0]))
        using (var first = new Mlp.Model(weights))
        using (var second = new Mlp.Model(weights))
        {
            second.Bind(new Mlp.Dims { N = 3 });
            foreach (int n in new[] { 1, 2, 8 })
            {
                first.Bind(new Mlp.Dims { N = n });
                Mlp.Outputs rows = first.Run(new Mlp.Inputs { X = x.Take(32 * n).ToArray() });
                Show("y", rows.ShapeOfY, rows.Y);
            }
            Mlp.Outputs three = second.Run(new Mlp.Inputs { X = x.Take(96).ToArray() });
            Show("y", three.ShapeOfY, three.Y);
            Fails(() => first.Bind(new Mlp.Dims { N = 9 }));
            Fails(() => first.Run(new Mlp.Inputs { X = x }));
            first.Bind(new Mlp.Dims { N = 2 });
            Fails(() => first.Run(new Mlp.Inputs { X = x }));
        }
        Fails(() => Mlp.Weights.Read("absent.bin"));
        using (var net = new Odd.Model())
        {
            var values = new float[] { 1, 0, 2, 0, 0, 3, 0, 0 };
            foreach (int length in new[] { 4, 0 })
            {
                net.Bind(new Odd.Dims { N = 1, N_ = 2, Seq_len = length });
                Odd.Outputs outputs = net.Run(new Odd.Inputs {
                    Class = values.Take(2 * length).ToArray(), A_b = new long[] { 5, 6 }, A_b_ = new byte[] { 1, 0 } });
                Show("return", outputs.ShapeOfReturn, outputs.Return);
                if (length == 4) Show("N", outputs.ShapeOfN, outputs.N);
                Show("where", outputs.ShapeOfWhere, outputs.Where);
            }
            Fails(() => net.Bind(new Odd.Dims { N = 1, N_ = 2, Seq_len = Odd.Ranges.Seq_lenMultiple + 2 }));
        }
    }
}
