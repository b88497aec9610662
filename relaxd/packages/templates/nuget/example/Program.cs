// Runs @short@ once on 0, 1/8 ... 7/8 and prints the first elements of each output.
using System;
using Relaxd.@module_name@;

public static class Program
{
    private static T[] Fill<T>(long count)
    {
        var values = new T[count];
        for (long i = 0; i < count; ++i)
            values[i] = (T)Convert.ChangeType(typeof(T) == typeof(float) || typeof(T) == typeof(double) ? i % 8 / 8.0 : i % 2, typeof(T));
        return values;
    }

    private static void Show<T>(string name, long[] shape, T[] values)
    {
        var first = new T[Math.Min(7, values.Length)];
        Array.Copy(values, first, first.Length);
        Console.WriteLine(name + " [" + string.Join(" ", shape) + "] [" + string.Join(" ", first) + "]");
    }

    public static void Main(string[] arguments)
    {
        var dims = new Dims();
@each dims@
        dims.@dim@ = @value@;
@end@
@each weights@
        using (Weights weights = Weights.Read(arguments[0]))
        using (var model = new Model(weights))
@end@
@each embedded@
        using (var model = new Model())
@end@
        {
            model.Bind(dims);
            var inputs = new Inputs();
@each inputs@
            inputs.@tensor@ = Fill<@type@>(Model.Count(Model.ShapeOf@tensor@(dims)));
@end@
            Outputs outputs = model.Run(inputs);
@each outputs@
            Show("@tensor@", outputs.ShapeOf@tensor@, outputs.@tensor@);
@end@
        }
    }
}
