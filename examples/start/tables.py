import verifolio
from wine import pipeline, table, y

result = verifolio.robustness(
    pipeline, table, y, epsilon={"alcohol": 1, "proline": 300}, integers=["proline"]
)
print(result, *[found.text() for found in result.counterexamples], sep="\n")
result.save("wine-result")
