import verifolio
from wine import kinds, pipeline, table

result = verifolio.robustness(
    pipeline, table, kinds, epsilon={"alcohol": 1, "proline": 300}, integers=["proline"]
)
print(result, *[found.text() for found in result.counterexamples], sep="\n")
result.save("wine-result")
